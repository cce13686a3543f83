"""How operators write down the folders that they open, and what keeps a folder from being used so."""

import os
import subprocess
from pathlib import Path

import pytest

from llm_sandbox_mcp.base.open_folders import OpenFolder, views_of
from tests.disks import small_disk


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("/data", OpenFolder("/data")),
        ("/data:ro", OpenFolder("/data")),
        ("/data:rw", OpenFolder("/data", writable=True)),
        ("~/out:rw", OpenFolder("/home/someone/out", writable=True)),
        ("/data//deep/../other/", OpenFolder("/data/other")),
        ("/a: b:c", OpenFolder("/a: b:c")),
        ("/:rw", OpenFolder("/", writable=True)),
    ],
)
def test_a_folder_is_open_for_reading_or_also_for_writing(text: str, folder: OpenFolder) -> None:
    assert OpenFolder.parse(text) == folder
    assert OpenFolder.parse(str(folder)) == folder


@pytest.mark.parametrize("text", ["/data:r", "/data:w", "/data:wr", "/data:RW", "~/out:rx", "/data:rw:r", "/data:rwx"])
def test_an_end_that_is_nearly_right_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must end with :ro or nothing .*, with :rw .*, with :rwd .*; got '"):
        OpenFolder.parse(text)


def test_a_relative_folder_needs_the_folder_that_it_is_in() -> None:
    for text in ("data", "", ":rw", "./data"):
        with pytest.raises(ValueError, match="must be absolute"):
            OpenFolder.parse(text)
    for text in ("", ":rw"):
        with pytest.raises(ValueError, match="must be absolute"):
            OpenFolder.parse(text, beside="/work")
    assert OpenFolder.parse("data:rw", beside="/work") == OpenFolder("/work/data", writable=True)
    assert OpenFolder.parse("/data", beside="/work") == OpenFolder("/data")


def test_each_folder_has_a_place_of_its_own_under_a_name_that_needs_no_quotes() -> None:
    paths = ("/home/a/data", "/srv/data", "/x/data-2", "/my files (old)", "/", "/a/..data..", "/home/a/data", "/über")
    views = [*views_of(map(OpenFolder.parse, paths), "/data")]
    assert [view.place.removeprefix("/data/") for view in views] == [
        *("data", "data-2", "data-2-2", "my-files-old", "folder", "data-3", "über"),
    ]
    assert [view.folder.path for view in views] == [*dict.fromkeys(paths)]


def test_a_folder_that_is_missing_or_closed_to_this_user_has_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, gone = str(tmp_path), f"{tmp_path}/gone"
    assert OpenFolder(path).problem is OpenFolder(path, True).problem is OpenFolder(path, True, True).problem is None
    for folder in (OpenFolder(gone), OpenFolder(gone, writable=True)):
        assert folder.problem == (f"{gone} is not a folder", "make it, or correct the path")
    allowed = os.R_OK | os.X_OK
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & ~allowed)
    assert OpenFolder(path).problem is None
    assert OpenFolder(path, writable=True).problem == (
        f"{path} cannot be written",
        "allow this user to write it, or open it only for reading",
    )
    allowed = os.X_OK
    for folder in (OpenFolder(path), OpenFolder(path, writable=True)):
        assert folder.problem == (f"{path} cannot be read", "allow this user to read it")


def test_a_folder_on_a_read_only_file_system_is_told_from_one_that_is_closed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert OpenFolder(str(disk)).problem is None
        assert OpenFolder(str(disk), writable=True).problem == (
            f"{disk} is on a read-only file system",
            "mount that for writing, or open it only for reading",
        )
