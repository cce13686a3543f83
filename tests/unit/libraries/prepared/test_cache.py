"""What is kept for later installations: everything in use, and otherwise what was used most recently."""

import os
import time
from pathlib import Path

import pytest

from llm_sandbox_mcp.libraries.prepared.cache import clear, contents
from llm_sandbox_mcp.libraries.prepared.keeping import hold, kept, prune, use


def make(folder: Path, name: str, days: float, place: str = "python-1") -> Path:
    """Makes a folder with a file of ten bytes that was last used a number of days ago."""
    path = folder / place / name
    path.mkdir(parents=True)
    (path / "file").write_bytes(bytes(10))
    assert use(path)
    os.utime(folder.with_name("locks") / f"{place}-{name}.used", (time.time() - 86400 * days,) * 2)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "environments"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_folder_that_was_not_used_for_a_month_is_removed_with_its_mark_and_its_place_stays(folder: Path) -> None:
    make(folder, "old", 30.01, "python-2")
    make(folder, "new", 29.99)
    assert prune(folder, 20) == 1
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()} == {
        *("python-1", "python-1/new", "python-2"),
    }
    assert names(folder.with_name("locks")) == {"python-1-new.used"}
    assert prune(folder / "nowhere", 20) == 0


def test_of_many_folders_the_most_recently_used_are_kept(folder: Path) -> None:
    for days in range(5):
        make(folder, f"{days}", days)
    use(folder / "python-1" / "4")
    assert prune(folder, 2) == 3
    assert {path.name for path in kept(folder)} == {"0", "4"}


def test_a_folder_in_use_is_kept_however_old_it_is(folder: Path) -> None:
    old = make(folder, "old", 100)
    descriptor = hold(old)
    assert descriptor is not None
    try:
        assert prune(folder, 0) == 0
    finally:
        os.close(descriptor)
    assert prune(folder, 0) == 1
    assert not use(old)
    with pytest.raises(FileNotFoundError):
        hold(old)


def test_a_folder_whose_removal_was_interrupted_is_removed_next_time(folder: Path) -> None:
    killed = make(folder, "killed", 1).rename(folder.with_name("unfinished") / "python-1-killed.old")
    prune(folder, 20)
    assert not killed.exists()


def test_a_folder_without_a_mark_counts_as_the_oldest(folder: Path) -> None:
    make(folder, "marked", 5)
    (folder / "python-1" / "unmarked").mkdir()
    prune(folder, 1)
    assert {path.name for path in kept(folder)} == {"marked"}


def test_usage_is_reported_with_its_limits(tmp_path: Path) -> None:
    make(tmp_path / "environments", "one", 1)
    make(tmp_path / "environments", "two", 1)
    make(tmp_path / "tools", "bin", 1, "uv-1")
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "wheel").write_bytes(bytes(7))
    found = [(each.folder.name, each.number, each.size(), each.most, each.most_bytes) for each in contents(tmp_path)]
    assert found == [("environments", 2, 20, 20, 0), ("tools", 1, 10, 2, 0), ("downloads", 1, 7, 0, 2 << 30)]
    clear(tmp_path)
    assert [each.size() for each in contents(tmp_path)] == [0, 0, 0]
    assert [each.size() for each in contents(tmp_path / "nowhere")] == [0, 0, 0]
