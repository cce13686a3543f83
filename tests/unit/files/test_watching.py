"""A folder that is looked at again is read again only if something changed, and then always."""

import mmap
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.files.watching import WatchedFolders
from tests.disks import small_disk


@pytest.fixture
def watched() -> Iterator[WatchedFolders]:
    with WatchedFolders() as folders:
        yield folders


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "top"
    (made / "d" / "e").mkdir(parents=True)
    (made / "d" / "file").write_text("1")
    (made / "d" / "e" / "deep").write_text("1")
    return made


def write_by_memory(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1) as memory:
        memory[0] = 0x32


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda top: (top / "d" / "file").write_text("2"),
    "content through memory": lambda top: write_by_memory(top / "d" / "file"),
    "permissions": lambda top: (top / "d" / "e" / "deep").chmod(0o600),
    "time": lambda top: os.utime(top / "d" / "file", (1, 1)),
    "a new file": lambda top: (top / "new").touch(),
    "a file from elsewhere": lambda top: (top.parent / "other").rename(top / "d" / "e" / "other"),
    "a deletion": lambda top: (top / "d" / "e" / "deep").unlink(),
    "a new name": lambda top: (top / "d" / "file").rename(top / "d" / "other"),
    "a folder that goes": lambda top: (top / "d" / "e").rename(top.parent / "e"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_seen(watched: WatchedFolders, top: Path, change: str) -> None:
    (top.parent / "other").touch()
    first = watched.look(str(top), files=10, size=10)
    assert watched.look(str(top), files=10, size=10) is first
    CHANGES[change](top)
    second = watched.look(str(top), files=10, size=10)
    assert second is not first
    assert second != first
    assert watched.look(str(top), files=10, size=10) is second


def test_what_happens_in_new_folders_is_seen(watched: WatchedFolders, top: Path) -> None:
    watched.look(str(top), files=10, size=10)
    (top / "f").mkdir()
    assert "f" in watched.look(str(top), files=10, size=10)
    (top / "f" / "file").touch()
    assert "f/file" in watched.look(str(top), files=10, size=10)


def test_a_folder_in_place_of_another_is_read(watched: WatchedFolders, top: Path) -> None:
    assert "d/file" in watched.look(str(top), files=10, size=10)
    top.rename(top.with_name("before"))
    top.mkdir()
    (top / "new").touch()
    assert {*watched.look(str(top), files=10, size=10)} == {"new"}
    with pytest.raises(FileNotFoundError):
        watched.look(f"{top}/none", files=10, size=10)


def test_a_file_with_another_name_elsewhere_is_looked_at_each_time(watched: WatchedFolders, top: Path) -> None:
    os.link(top / "d" / "file", top.parent / "elsewhere")
    first = watched.look(str(top), files=10, size=10)
    (top.parent / "elsewhere").write_text("2")
    assert watched.look(str(top), files=10, size=10) != first


def test_a_folder_with_another_mounted_in_it_is_looked_at_each_time(watched: WatchedFolders, top: Path) -> None:
    with small_disk(top.parent / "disk", "1m") as disk:
        (disk / "top" / "d").mkdir(parents=True)
        (disk / "elsewhere").mkdir()
        subprocess.run(["mount", "--bind", disk / "elsewhere", disk / "top" / "d"], check=True)
        assert {*watched.look(str(disk / "top"), files=10, size=10)} == {"d"}
        (disk / "elsewhere" / "file").touch()
        assert {*watched.look(str(disk / "top"), files=10, size=10)} == {"d", "d/file"}
        (disk / "elsewhere" / "file").write_text("1")
        assert watched.look(str(disk / "top"), files=10, size=10)["d/file"].stamp.size == 1


def test_limits_count_each_time(watched: WatchedFolders, top: Path) -> None:
    watched.look(str(top), files=4, size=2)
    for files, size in ((3, 2), (4, 1)):
        with pytest.raises(OverflowError):
            watched.look(str(top), files=files, size=size)
    assert len(watched.look(str(top), files=4, size=2)) == 4


def test_what_a_killed_server_left_is_found_but_not_what_another_is_doing(watched: WatchedFolders, top: Path) -> None:
    for name in (".0123456789abcdef.part", "d/.fedcba9876543210.part", ".env", ".0123.part"):
        (top / name).touch()
    watched.look(str(top), files=10, size=10)
    assert watched.left_over(str(top)) == []
    os.utime(top / "d" / ".fedcba9876543210.part", (1, 1))
    watched.look(str(top), files=10, size=10)
    assert watched.left_over(str(top)) == ["d/.fedcba9876543210.part"]
    assert watched.left_over("/none") == ()


def test_nothing_stays_open(top: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with WatchedFolders() as folders:
        folders.look(str(top), files=10, size=10)
        with pytest.raises(OverflowError):
            folders.look(str(top), files=1, size=10)
    assert os.listdir("/proc/self/fd") == before
