"""What code changed gets into a folder, or is named; whatever a list or an archive from inside says."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.archive import END, header, padding
from llm_sandbox_mcp.backends.listing import Entry, Stamp
from llm_sandbox_mcp.files.merging import Outgoing, Pair, outgoing
from llm_sandbox_mcp.files.saving import Report, Saving
from llm_sandbox_mcp.open_folders import OpenFolder

DATA = b"from code"


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "top"
    made.mkdir()
    (tmp_path / "outside").write_text("theirs")
    yield made
    assert (tmp_path / "outside").read_text() == "theirs"
    assert {path.name for path in tmp_path.iterdir()} == {"top", "outside"}


def inside(number: int, mode: int = 0o644) -> Entry:
    return Entry("f", mode, Stamp(number, len(DATA), number, number))


def known(path: Path, number: int) -> Pair:
    return Pair(Entry.of(path.stat()), inside(number))


def packed(*names: str, data: bytes = DATA) -> bytes:
    return b"".join(header(name, len(data)) + data + padding(len(data)) for name in names) + END


def save(
    top: Path, base: dict[str, Pair], tree: dict[str, Entry], archive: bytes, *, plan: Outgoing | None = None
) -> Report:
    """Saves what a list says is in the copy, from an archive."""
    saving = Saving(OpenFolder(str(top), True, True), base, tree, plan or outgoing(base, tree, {}), 1 << 20)
    try:
        saving.begin()
        saving.feed(archive)
        saving.finish()
    finally:
        saving.close()
    return saving.report


@pytest.mark.parametrize(
    "name", ["../outside", "../new", "a/../../new", ".envrc", ".git/hooks/pre-commit", "a/.x/b", "a//b"]
)
def test_a_forged_name_is_refused(top: Path, name: str) -> None:
    (top / ".git" / "hooks").mkdir(parents=True)
    (top / ".git" / "hooks" / "pre-commit").write_text("theirs")
    base = {}
    if (top / name).exists():
        base[name] = known(top / name, 1)
    tree = {name: inside(2), "good": inside(3)}
    report = save(top, base, tree, packed(name, "good"))
    assert [*report.failed.values()] == [[name]]
    assert report.saved == ["good"]
    assert (top / ".git" / "hooks" / "pre-commit").read_text() == "theirs"
    assert {path.name for path in top.iterdir()} <= {".git", "good", "a"}
    for plan in (Outgoing(moved={"good": name}, files=[name]), Outgoing(gone=[name]), Outgoing(folders=[name])):
        moved = {"good": known(top / "good", 3), name: Pair(Entry.of((top / "good").stat()), inside(9))}
        save(top, moved, {name: inside(4)}, packed(name), plan=plan)
        assert (top / "good").read_bytes() == DATA
        assert (top / ".git" / "hooks" / "pre-commit").read_text() == "theirs"


def test_a_repositorys_own_files_are_not_written_whatever_its_name(top: Path) -> None:
    bare = top / "project.git"
    for name in ("hooks", "objects", "refs"):
        (bare / name).mkdir(parents=True)
    for name in ("HEAD", "config"):
        (bare / name).write_text("theirs")
    base = {"project.git/config": known(bare / "config", 1), "project.git/HEAD": known(bare / "HEAD", 2)}
    tree = {"project.git/config": inside(3), "project.git/hooks/update": inside(4)}
    report = save(top, base, tree, packed("project.git/config", "project.git/hooks/update"))
    [names] = report.failed.values()
    assert {*names} == {"project.git/config", "project.git/hooks/update"}
    assert (bare / "config").read_text() == "theirs"
    assert (bare / "HEAD").exists()
    assert not (bare / "hooks" / "update").exists()


def test_nothing_is_written_into_an_opened_folder_that_is_a_repositorys_own(top: Path) -> None:
    for name in ("hooks", "objects", "refs"):
        (top / name).mkdir()
    (top / "HEAD").write_text("theirs")
    base = {"HEAD": known(top / "HEAD", 1)}
    report = save(
        top, base, {"hooks/update": inside(2), "description": inside(3)}, packed("hooks/update", "description")
    )
    assert {*report.failed} == {"it is in a repository's own folder"}
    assert sorted(os.listdir(top)) == ["HEAD", "hooks", "objects", "refs"]
    assert not os.listdir(top / "hooks")


@pytest.mark.parametrize("cut", [0, 300, 515, 1030, 1540])
def test_what_an_archive_leaves_out_is_named_and_nothing_is_deleted_for_it(top: Path, cut: int) -> None:
    (top / "old").write_text("old")
    base = {"old": known(top / "old", 1)}
    tree = {"a": inside(2), "b": inside(3)}
    report = save(top, base, tree, packed("a", "b")[:cut])
    whole = [name for name, end in (("a", 512 + len(DATA)), ("b", 1536 + len(DATA))) if cut >= end]
    assert report.saved == whole
    assert report.failed == {"it could not be read completely": sorted({"a", "b"} - {*whole})}
    assert sorted(os.listdir(top)) == sorted([*whole, "old"])
    assert {*base} == {"old", *whole}
    # Then, all of it.
    report = save(top, base, tree, packed("a", "b"))
    assert sorted(os.listdir(top)) == ["a", "b"]
    assert report.deleted == ["old"]


def test_a_file_that_a_program_writes_to_is_not_replaced_under_it(top: Path) -> None:
    (top / "log").write_text("theirs\n")
    base = {"log": known(top / "log", 1)}
    with (top / "log").open("a") as log:
        report = save(top, base, {"log": inside(2)}, packed("log"))
        log.write("more\n")
    assert report.beside == {"log": "log.from-code"}
    assert (top / "log").read_text() == "theirs\nmore\n"
    assert (top / "log.from-code").read_bytes() == DATA
    # A reader does not matter.
    base = {"log": known(top / "log", 1)}
    with (top / "log").open() as log:
        assert fcntl.fcntl(log, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        assert save(top, base, {"log": inside(3)}, packed("log")).saved == ["log"]
