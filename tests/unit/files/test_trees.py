"""Packing a folder of this machine: what belongs to it, and an archive that is whole whatever happens to the folder."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from llm_sandbox_mcp.files.trees import list_tree, pack


def unpacked(top: Path, paths: list[str]) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(pack(str(top), paths)))) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}  # type: ignore[union-attr]


def test_only_regular_files_that_are_not_hidden_belong_to_a_folder(tmp_path: Path) -> None:
    top, other = tmp_path / "top", tmp_path / "other"
    (top / "a" / "b").mkdir(parents=True)
    other.mkdir()
    content = {"x.csv": b"1,2\n", "a/b/y": bytes(3 << 20) + b"end", "a/empty": b"", "a/name with\nline": b"n"}
    for name, data in content.items():
        (top / name).write_bytes(data)
    (other / "secret").write_text("secret")
    (top / ".git").mkdir()
    (top / ".git" / "config").write_text("hidden")
    (top / ".env").write_text("hidden")
    (top / "link").symlink_to(other / "secret")
    (top / "way").symlink_to(other)
    os.mkfifo(top / "pipe")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff")).write_text("not UTF-8")
    found = list_tree(str(top), files=10, size=10 << 20)
    assert {*found} == {*content}
    assert unpacked(top, found) == content


def test_more_files_or_bytes_than_allowed_are_an_error(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("123")
    assert len(list_tree(str(tmp_path), files=3, size=9)) == 3
    for files, size in ((2, 9), (3, 8)):
        with pytest.raises(OverflowError):
            list_tree(str(tmp_path), files=files, size=size)
    with pytest.raises(FileNotFoundError):
        list_tree(str(tmp_path / "none"), files=3, size=9)


def test_what_changes_meanwhile_leaves_a_whole_archive(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    top = tmp_path / "top"
    (top / "folder").mkdir(parents=True)
    for name in ("gone", "link", "folder/file", "kept"):
        (top / name).write_text(name)
    found = sorted(list_tree(str(top), files=10, size=1000))
    (top / "gone").unlink()
    (top / "link").unlink()
    (top / "link").symlink_to(tmp_path / "other")
    (top / "folder").rename(tmp_path / "moved")
    (top / "folder").symlink_to(tmp_path / "moved")
    assert unpacked(top, found) == {"kept": b"kept"}


def test_a_file_that_becomes_shorter_is_filled_with_zeros(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * (3 << 20))
    parts = pack(str(tmp_path), ["file"])
    archive = next(parts) + next(parts)
    os.truncate(file, 100)
    with tarfile.open(fileobj=io.BytesIO(archive + b"".join(parts))) as read:
        [member] = read
        assert member.size == 3 << 20
