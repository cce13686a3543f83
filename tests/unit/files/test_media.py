"""Media types by file name, the same on every machine."""

import pytest

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
