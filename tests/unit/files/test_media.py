"""Media types by file name, the same on every machine."""

import mimetypes
from pathlib import Path

import pytest

from llm_sandbox_mcp.files import media
from llm_sandbox_mcp.files.media import mime_type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("figure-1.png", "image/png"),
        ("a/b.JPG", "image/jpeg"),
        ("x.jpeg", "image/jpeg"),
        ("x.svg", "image/svg+xml"),
        ("x.webp", "image/webp"),
        ("x.gif", "image/gif"),
        ("x.pdf", "application/pdf"),
        ("x.html", "text/html"),
        ("x.csv", "text/csv"),
        ("x.json", "application/json"),
        ("x.txt", "text/plain"),
        ("x.md", "text/markdown"),
        ("x.parquet", "application/vnd.apache.parquet"),
        ("x.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("x.ts", "text/typescript"),  # video/mp2t in Debian's /etc/mime.types
        ("x.tsx", "text/typescript"),
        ("x.mjs", "text/javascript"),
        ("x.jsx", "text/javascript"),
        ("x.cpp", "text/x-c++src"),
        ("x.hpp", "text/x-c++hdr"),
        ("x.h", "text/x-chdr"),
        ("x.go", "text/x-go"),
        ("x.rs", "text/x-rust"),
        ("x.rb", "text/x-ruby"),
        ("x.R", "text/x-r"),
        ("x.java", "text/x-java"),
        ("x.sh", "text/x-shellscript"),
        ("x.sql", "application/sql"),
        ("x.log", "text/plain"),
        ("x.ipynb", "application/x-ipynb+json"),
        ("x.toml", "application/toml"),
        ("x.yaml", "application/yaml"),
        ("x.yml", "application/yaml"),
        ("x.jsonl", "application/jsonl"),
        ("x.geojson", "application/geo+json"),
        ("x.feather", "application/vnd.apache.arrow.file"),
        ("x.arrow", "application/vnd.apache.arrow.file"),
        ("x.sqlite", "application/vnd.sqlite3"),
        ("x.db", "application/vnd.sqlite3"),
        ("x.whl", "application/zip"),
        ("x.npz", "application/zip"),
        ("x.zst", "application/zstd"),
        ("x.npy", "application/octet-stream"),
        ("x.pkl", "application/octet-stream"),
        ("x.dot", "text/vnd.graphviz"),  # application/msword in Python
        ("x.csv.gz", "application/gzip"),
        ("x.tar.bz2", "application/x-bzip2"),
        ("x.nothing", "application/octet-stream"),
        ("data:text/html,x.nothing", "application/octet-stream"),
        ("x.cdr", "application/octet-stream"),  # image/x-coreldraw with Debian's /etc/mime.types
        ("Makefile", "application/octet-stream"),
        (".png", "application/octet-stream"),
        ("a.b/c", "application/octet-stream"),
    ],
)
def test_the_file_name_extension_decides(name: str, expected: str) -> None:
    assert mime_type(name) == expected


def test_the_files_of_a_machine_have_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mime.types").write_text("video/mp2t ts\nimage/tiff png\nchemical/wrong bib css npy\n")
    monkeypatch.setattr(mimetypes, "knownfiles", [str(tmp_path / "mime.types")])
    monkeypatch.setattr(mimetypes, "inited", False)
    mimetypes.init()
    assert mimetypes.guess_type("x.npy")[0] == "chemical/wrong"
    media._types.cache_clear()
    try:
        found = [mime_type(name) for name in ("x.ts", "x.png", "x.css", "x.npy")]
    finally:
        media._types.cache_clear()
        monkeypatch.undo()
        mimetypes.init()
    assert found == ["text/typescript", "image/png", "text/css", "application/octet-stream"]
