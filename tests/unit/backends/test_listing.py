"""Lists of what is in a sandbox, as its own tools print them."""

import mmap
import os
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.listing import FOLDER, SAME, Entry, Stamp, read_list, read_tree, tree_command


def listed(folder: Path, since: int = 0) -> bytes:
    return subprocess.run(["sh", "-c", tree_command(str(folder), since)], capture_output=True, check=False).stdout


def test_a_list_has_everything_below_a_folder_but_hidden_names(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/b/x y", "a/two\nlines", "-rf", ".hidden", os.fsdecode(b"\xff")):
        (tmp_path / name).write_text("12345")
    (tmp_path / "a" / ".git" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "-rf").chmod(0o4711)
    before = time.time_ns()
    with (tmp_path / "a" / "two\nlines").open("a"), (tmp_path / "-rf").open():
        list_ = read_tree(listed(tmp_path))
    assert list_ is not None
    found = list_.tree
    assert not list_.mapped
    assert list_.held == {"a/two\nlines"}
    assert list_.folders == {name: (tmp_path / name).stat().st_ino for name in ("a", "a/b")}
    assert list_.hidden == {name: (tmp_path / name).stat().st_ino for name in (".hidden", "a/.git")}
    assert before <= list_.time <= time.time_ns()
    kinds = {
        "a": "d",
        "a/b": "d",
        "a/b/x y": "f",
        "a/two\nlines": "f",
        "-rf": "f",
        "\udcff": "f",
        "link": "l",
        "pipe": "p",
    }
    assert {name: entry.kind for name, entry in found.items()} == kinds
    assert found["a"] == FOLDER
    state = (tmp_path / "-rf").stat()
    assert found["-rf"] == Entry("f", 0o4711, Stamp.of(state))


@pytest.mark.parametrize("cut", [0, 1, 5, 20])
def test_a_list_that_is_not_whole_is_no_list(tmp_path: Path, cut: int) -> None:
    (tmp_path / "file").write_text("")
    whole = listed(tmp_path)
    assert read_tree(whole) is not None
    assert read_tree(whole[: len(whole) - 1 - cut]) is None
    assert read_tree(whole + b"x") is None
    assert read_tree(whole.replace(b"0 end", b"1 end")) is None


def forge(file: Path) -> None:
    """Changes a file and gives it the size and time that it had."""
    file.write_text("12346")
    os.utime(file, ns=(1, 1))


def changes(top: Path) -> dict[str, Callable[[], object]]:
    return {
        "content": lambda: (top / "d" / "file").write_text("other"),
        "content with its old time": lambda: forge(top / "d" / "file"),
        "permissions": lambda: (top / "d" / "file").chmod(0o600),
        "a new file": lambda: (top / "d" / "new").touch(),
        "a new file at the top": lambda: (top / "new").touch(),
        "a deletion": lambda: (top / "d" / "file").unlink(),
        "a new name": lambda: (top / "d" / "file").rename(top / "file"),
        "a folder": lambda: (top / "d").rename(top / "e"),
        "a link": lambda: (top / "d" / "link").symlink_to("file"),
    }


def test_any_change_since_a_list_makes_another(tmp_path: Path) -> None:
    """Each change in a folder of its own; all folders are made, and wait until their lists are certain, at once."""
    folders = {change: tmp_path / str(number) for number, change in enumerate(changes(tmp_path))}
    for folder in folders.values():
        (folder / "d").mkdir(parents=True)
        (folder / "d" / "file").write_text("12345")
        os.utime(folder / "d" / "file", ns=(1, 1))
        made = max(path.lstat().st_ctime_ns for path in (folder, folder / "d", folder / "d" / "file"))
    # The list is of a moment ago: its time has a margin.
    later = made + 10**8 + 1
    _wait_until(later)
    for change, folder in folders.items():
        assert listed(folder, later) == SAME, change
        (folder / ".hidden").mkdir()
        whole = read_tree(listed(folder, later))
        assert whole is not None and {*whole[1]} == {"d", "d/file"}, change
    _wait_until(later + 10**8)
    for change, folder in folders.items():
        changes(folder)[change]()
        assert read_tree(listed(folder, later)) is not None, change


def _wait_until(time_ns: int) -> None:
    while time.time_ns() < time_ns:
        os.sched_yield()


def test_a_clock_that_was_set_back_makes_another_list(tmp_path: Path) -> None:
    assert read_tree(listed(tmp_path, time.time_ns() + 10**12)) is not None


def test_a_folder_that_cannot_be_read_is_never_taken_for_unchanged(tmp_path: Path) -> None:
    assert listed(tmp_path / "none", time.time_ns()).endswith(b"1 end\0")


RECORD = b"f 644 1 5 1.0000000000 1.0000000000 "


@pytest.mark.parametrize(
    "record",
    [
        *(b".x", b"1", b"x .x", *(b"1 " + name for name in (b".", b"..", b"../x", b"/.x", b".x/y", b"x", b"a/../.x"))),
        *(RECORD + name for name in (b"../x", b"a/../x", b"/x", b".x", b"a/.git/x", b"a//b", b"a/", b"", b".", b"..")),
        *(b"f 644 1 5 %s 1.0 x" % time for time in (b"1", b"-" + b"9" * 60 + b".0", b"1e9", b"nan", b"")),
        *(b"f 644 %s 5 1.0 1.0 x" % number for number in (b"-1", b"9" * 30, b"x", b"")),
        b"f 99999 1 5 1.0 1.0 x",
        b"f 644 1 5 1.0 1.0",
        b"",
    ],
)
def test_a_list_with_a_forged_record_is_no_list(record: bytes) -> None:
    assert read_tree(b"1.000000000\0\0" + RECORD + b"x\0" + b"0 end\0") is not None
    assert read_tree(b"1.000000000\0\0" + RECORD + b"x\0" + record + b"\0" + b"0 end\0") is None


def test_malformed_records_of_the_working_directory_are_ignored() -> None:
    records = (RECORD + b"../x", RECORD + b"x", b"", RECORD + b"\xff", b"f x", RECORD + b"cut at the e")
    assert read_list(b"\0".join(records)) == {"x": Stamp(1, 5, 10**9, 10**9)}


def test_what_stays_in_memory_of_lists_that_code_made_long_is_bounded() -> None:
    def read(number: int) -> None:
        names = (b"%d/%d" % (number, count) + b"/x" * 1900 for count in range(2000))
        output = b"1.000000000\0\0" + b"".join(RECORD + name + b"\0" for name in names) + b"0 end\0"
        assert read_tree(output) is not None

    read(0)
    tracemalloc.start()
    try:
        for number in range(1, 4):  # 8 MB each
            read(number)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_files_that_a_process_can_change_through_its_memory_are_listed(tmp_path: Path) -> None:
    for name in ("shared", "two\nlines", "private", "read"):
        (tmp_path / name).write_text("12345")
    shared, private = mmap.MAP_SHARED, mmap.MAP_PRIVATE
    with (
        (tmp_path / "shared").open("r+b") as one,
        (tmp_path / "two\nlines").open("r+b") as four,
        (tmp_path / "private").open("r+b") as two,
        (tmp_path / "read").open("rb") as three,
        mmap.mmap(one.fileno(), 5, flags=shared),
        mmap.mmap(four.fileno(), 5, flags=shared),
        mmap.mmap(two.fileno(), 5, flags=private),
        mmap.mmap(three.fileno(), 5, flags=shared, prot=mmap.PROT_READ),
    ):
        found = read_tree(listed(tmp_path, time.time_ns() + 10**8))
        assert found is not None and found.mapped >= {"shared", "two\nlines"}
        assert not {"private", "read"} & found.mapped


@given(st.binary(max_size=200))
def test_no_output_makes_reading_fail(output: bytes) -> None:
    for data in (output, b"1.000000000\0\0" + output + b"\0000 end\0"):
        assert isinstance(read_tree(data), tuple | None)


def test_what_has_a_name_is_told_by_its_kind_and_only_a_folder_has_no_stamp(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"xy")
    (tmp_path / "f").chmod(0o4751)
    (tmp_path / "d").mkdir()
    (tmp_path / "l").symlink_to("d")
    os.mkfifo(tmp_path / "o")
    states = {name: (tmp_path / name).lstat() for name in "fdlo"}
    entries = {name: Entry.of(state) for name, state in states.items()}
    assert {name: entry.kind for name, entry in entries.items()} == {name: name for name in "fdlo"}
    assert (entries["f"].mode, entries["f"].stamp.size, entries["d"]) == (0o4751, 2, FOLDER)
    assert entries["l"].stamp == Stamp.of(states["l"])
