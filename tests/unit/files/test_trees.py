"""Packing a folder of this machine: what belongs to it, and an archive that is whole whatever happens to the folder."""

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.listing import FOLDER, Entry, Tree
from llm_sandbox_mcp.files.trees import Packed, list_tree, pack
from tests.disks import small_disk

CONFIG = b"""[core]
\tbare = false
[remote "origin"]
\turl = https://me:s3cret@host.example/x
[credential]
\thelper = /home/me/helper
"""


def packed(top: Path, paths: Iterable[str], *, writable: bool = True) -> dict[str, tarfile.TarInfo]:
    """The members of an archive."""
    data = b"".join(pack(top, sorted(paths), Packed(), writable=writable))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


def unpacked(top: Path, paths: Iterable[str]) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(pack(top, sorted(paths), Packed(), writable=True)))) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}  # type: ignore[union-attr]


def files_of(tree: Tree) -> set[str]:
    return {name for name, entry in tree.items() if entry.kind == "f"}


def test_only_regular_files_that_are_not_hidden_belong_to_a_folder(tmp_path: Path) -> None:
    top, other = tmp_path / "top", tmp_path / "other"
    (top / "a" / "b").mkdir(parents=True)
    other.mkdir()
    content = {"x.csv": b"1,2\n", "a/b/y": bytes(3 << 20) + b"end", "a/empty": b"", "a/name with\nline": b"n"}
    for name, data in content.items():
        (top / name).write_bytes(data)
    (other / "secret").write_text("secret")
    for name in (".env", "a/.git.swp"):
        (top / name).write_text("hidden")
    (top / "link").symlink_to(other / "secret")
    (top / "way").symlink_to(other)
    os.mkfifo(top / "pipe")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff")).write_text("not UTF-8")
    found = list_tree(str(top), files=10, size=10 << 20)
    assert files_of(found) == {*content}
    assert {name: entry.kind for name, entry in found.items() if entry.kind != "f"} == {
        "a": "d",
        "a/b": "d",
        "link": "l",
        "way": "l",
        "pipe": "o",
    }
    assert found["a"] == FOLDER
    assert found["x.csv"] == Entry.of((top / "x.csv").stat())
    assert unpacked(top, found) == content


def test_files_keep_their_permissions_and_their_times_to_the_nanosecond(tmp_path: Path) -> None:
    for name, mode in (("plain", 0o644), ("run", 0o4755), ("private", 0o600), ("locked", 0o444), ("closed", 0)):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
        os.utime(tmp_path / name, ns=(1, 1_700_000_000_123_456_789))
    found = list_tree(str(tmp_path), files=10, size=1000)
    members = packed(tmp_path, found)
    modes = {"plain": 0o644, "run": 0o755, "private": 0o600, "locked": 0o444}
    if os.geteuid() == 0:  # the only one that can read it
        modes["closed"] = 0o400
    assert {name: member.mode for name, member in members.items()} == modes
    assert {member.pax_headers["mtime"] for member in members.values()} == {"1700000000.123456789"}
    assert {name: member.mode for name, member in packed(tmp_path, found, writable=False).items()} == {
        name: mode & 0o555 for name, mode in modes.items()
    }


def test_a_repository_is_there_without_its_secrets_and_cannot_be_written(tmp_path: Path) -> None:
    for name in (".git", "sub/.git/modules/x"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config").write_bytes(CONFIG)
        (tmp_path / name / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "config").write_bytes(CONFIG)
    found = unpacked(tmp_path, list_tree(str(tmp_path), files=100, size=10_000))
    assert found["config"] == CONFIG
    for name in (".git/config", "sub/.git/modules/x/config"):
        assert b"url = " in found[name] and b"s3cret" not in found[name] and b"helper" not in found[name]
    modes = packed(tmp_path, list_tree(str(tmp_path), files=100, size=10_000))
    assert {modes[name].mode for name in (".git/HEAD", ".git/config")} == {0o444}


@pytest.mark.parametrize("place", ["", "project.git", "deep/mirror"])
def test_no_config_of_a_bare_repository_has_its_secrets(tmp_path: Path, place: str) -> None:
    top = tmp_path / place
    for name in ("objects", "refs", "hooks"):
        (top / name).mkdir(parents=True)
    (top / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("config", "config.lock", "config.worktree", "Config~", "credentials"):
        (top / name).write_bytes(CONFIG)
    found = unpacked(tmp_path, list_tree(str(tmp_path), files=100, size=10_000))
    shown = {name.rpartition("/")[2]: content for name, content in found.items()}
    assert {*shown} == {"HEAD", "config", "config.lock", "config.worktree", "Config~"}
    assert b"url = https://host.example/x" in shown["config"]
    assert not [name for name, content in shown.items() if b"s3cret" in content or b"helper" in content]


@pytest.mark.parametrize("place", ["", "project.git"])
def test_nothing_in_a_bare_repository_shows_a_config_with_its_secrets(tmp_path: Path, place: str) -> None:
    top = tmp_path / place
    (top / "worktrees" / "w").mkdir(parents=True)
    (top / "HEAD").symlink_to("refs/heads/none")
    (top / "worktrees" / "w" / "config.worktree").write_bytes(CONFIG)
    (top / "config").write_bytes(CONFIG)
    found = unpacked(tmp_path, list_tree(str(tmp_path), files=100, size=10_000))
    assert len(found) == 2
    assert not [name for name, content in found.items() if b"s3cret" in content]


def test_a_folder_with_some_other_file_of_that_name_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "HEAD").write_text("the first lines")
    (tmp_path / "config").write_bytes(CONFIG)
    assert unpacked(tmp_path, ["HEAD", "config"])["config"] == CONFIG
    for text in ("ref: refs/heads/main", "0123456789abcdef0123456789abcdef01234567"):
        (tmp_path / "HEAD").write_text(text)
        assert b"s3cret" not in unpacked(tmp_path, ["config"])["config"]


def test_other_file_systems_below_a_folder_do_not_belong_to_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "other", "1m") as disk:
        (disk / "file").touch()
        (tmp_path / "own").touch()
        assert {*list_tree(str(tmp_path), files=10, size=10)} == {"own"}


def test_times_before_1970_are_kept(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", ns=(1, -1_500_000_000))
    if (tmp_path / "old").stat().st_mtime_ns != -1_500_000_000:
        pytest.skip("this file system has no such times")
    [member] = packed(tmp_path, ["old"]).values()
    assert member.pax_headers["mtime"] == "-1.500000000"


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
    found = list_tree(str(top), files=10, size=1000)
    (top / "gone").unlink()
    (top / "link").unlink()
    (top / "link").symlink_to(tmp_path / "other")
    (top / "folder").rename(tmp_path / "moved")
    (top / "folder").symlink_to(tmp_path / "moved")
    assert unpacked(top, found) == {"kept": b"kept"}


def test_a_file_that_becomes_shorter_is_filled_with_zeros(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * (3 << 20))
    parts = pack(tmp_path, ["file"], Packed(), writable=True)
    archive = next(parts) + next(parts)
    os.truncate(file, 100)
    with tarfile.open(fileobj=io.BytesIO(archive + b"".join(parts))) as read:
        [member] = read
        assert member.size == 3 << 20
