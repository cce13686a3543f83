"""What code changed gets into a folder, or is named; whatever a list or an archive from inside says."""

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.archive import END, header, padding
from llm_sandbox_mcp.backends.listing import FOLDER, Entry, Stamp
from llm_sandbox_mcp.base.open_folders import OpenFolder
from llm_sandbox_mcp.files.merging import NEVER, Outgoing, Pair, outgoing
from llm_sandbox_mcp.files.renaming import rename_folders
from llm_sandbox_mcp.files.report import Report
from llm_sandbox_mcp.files.saving import Saving

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
    top: Path,
    base: dict[str, Pair],
    tree: dict[str, Entry],
    archive: bytes,
    *,
    plan: Outgoing | None = None,
    whole: bool = True,
) -> Report:
    """Saves what a list says is in the copy, from an archive."""
    folder = OpenFolder(str(top), True, True)
    saving = Saving(folder, base, tree, plan or outgoing(base, tree, {}), 1 << 20, whole=whole)
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
    assert [*report.failed.values(), *report.refused.values()] == [[name]]
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
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    (bare / "config").write_text("theirs")
    base = {"project.git/config": known(bare / "config", 1), "project.git/HEAD": known(bare / "HEAD", 2)}
    tree = {"project.git/config": inside(3), "project.git/hooks/update": inside(4)}
    report = save(top, base, tree, packed("project.git/config", "project.git/hooks/update"))
    assert {name for names in report.refused.values() for name in names} == {
        "project.git/config",
        "project.git/hooks/update",
    }
    assert (bare / "config").read_text() == "theirs"
    assert (bare / "HEAD").exists()
    assert not (bare / "hooks" / "update").exists()


def test_nothing_is_written_into_an_opened_folder_that_is_a_repositorys_own(top: Path) -> None:
    for name in ("hooks", "objects", "refs"):
        (top / name).mkdir()
    (top / "HEAD").write_text("ref: refs/heads/main\n")
    base = {"HEAD": known(top / "HEAD", 1)}
    report = save(
        top, base, {"hooks/update": inside(2), "description": inside(3)}, packed("hooks/update", "description")
    )
    assert {name for names in report.refused.values() for name in names} == {"hooks/update", "description"}
    assert sorted(os.listdir(top)) == ["HEAD", "hooks", "objects", "refs"]
    assert not os.listdir(top / "hooks")


@pytest.mark.parametrize("head", ["HEAD", "head"])
def test_no_folder_becomes_a_repository(top: Path, head: str) -> None:
    names = [f"docs/{name}" for name in (head, "config", "objects/x", "refs/x")]
    (top / "theirs").touch()
    base = {"theirs": known(top / "theirs", 8)}
    tree = {name: inside(number) for number, name in enumerate([*names, "moved"], 1)}
    report = save(top, base, tree, packed(*names))
    assert report.refused == {"with a file of that name, its folder could become a repository": [f"docs/{head}"]}
    assert not (top / "docs" / head).exists()
    base = {"theirs": known(top / "theirs", 8)}
    save(top, base, tree, packed(), plan=Outgoing(moved={"theirs": f"docs/{head}"}, files=[f"docs/{head}"]))
    assert (top / "theirs").exists()
    assert not (top / "docs" / head).exists()


def test_a_file_that_is_written_while_it_is_read_is_not_saved(top: Path) -> None:
    (top / "file").write_text("theirs")
    report = save(
        top, {"file": known(top / "file", 1)}, {"file": inside(2), "new": inside(3)}, packed("file", data=b"half")
    )
    assert report.unready == {"code is still writing it": ["file"], "it could not be read completely": ["new"]}
    assert os.listdir(top) == ["file"]
    assert (top / "file").read_text() == "theirs"


def test_a_file_is_not_replaced_before_what_was_in_it_is_saved_elsewhere(top: Path) -> None:
    (top / "data").write_text("theirs")
    base = {"data": known(top / "data", 1)}
    tree = {"data": inside(2), "old/data": inside(1)}
    report = save(top, base, tree, packed("data"))
    assert report.unready == {
        "its older content could not be saved as old/data": ["data"],
        "it could not be read completely": ["old/data"],
    }
    assert (top / "data").read_text() == "theirs"
    assert save(top, base, tree, packed("old/data", "data")).saved == ["old/data", "data"]


def test_a_folder_replaces_a_file_or_the_reverse_only_when_all_is_saved(top: Path) -> None:
    (top / "file").write_text("theirs")
    (top / "folder").mkdir()
    (top / "folder" / "in").write_text("theirs")
    base = {
        "file": known(top / "file", 1),
        "folder": Pair(FOLDER, FOLDER),
        "folder/in": known(top / "folder" / "in", 2),
    }
    tree = {"file": FOLDER, "file/in": inside(3), "folder": inside(4), "other": inside(5)}
    first = {**base}
    report = save(top, base, tree, packed("file/in", "folder"))
    assert report.unready == {"it could not be read completely": ["other"]}
    assert report.beside == {"file/in": "file.from-code/in", "folder": "folder.from-code"}
    assert sorted(report.kept) == ["file", "folder", "folder/in"]
    assert not report.waiting
    assert (top / "file").read_text() == (top / "folder" / "in").read_text() == "theirs"
    assert (top / "file.from-code" / "in").read_bytes() == (top / "folder.from-code").read_bytes() == DATA
    # The next run would see the person's versions. If it does the same again:
    (top / "file.from-code" / "in").write_text("read by the person")
    report = save(top, first, tree, packed("file/in", "folder", "other"))
    assert sorted(report.saved) == ["file/in", "folder", "other"]
    assert report.deleted == ["folder/in", "folder/", "file"]
    assert not report.beside
    assert not report.kept
    assert (top / "file" / "in").read_bytes() == (top / "folder").read_bytes() == (top / "other").read_bytes() == DATA
    assert (top / "file.from-code" / "in").read_text() == "read by the person"
    assert sorted(path.name for path in top.iterdir()) == [
        *("file", "file.from-code", "folder", "folder.from-code", "other"),
    ]
    # What both sides have is known: these are the code's own files, and it can replace them.
    assert not outgoing(first, tree, {})
    tree["folder"], tree["file/in"] = inside(6), inside(7)
    assert save(top, first, tree, packed("file/in", "folder", data=b"from CODE")).saved == ["file/in", "folder"]


def test_what_the_person_changed_stays_where_code_has_another_kind_of_file(top: Path) -> None:
    (top / "file").write_text("theirs")
    (top / "folder").mkdir()
    base = {"file": known(top / "file", 1), "folder": Pair(FOLDER, FOLDER)}
    (top / "file").write_text("changed by them")
    (top / "folder" / "new").write_text("made by them")
    tree = {"file": FOLDER, "file/in": inside(3), "folder": inside(4)}
    report = save(top, base, tree, packed("file/in", "folder"))
    assert report.beside == {"file/in": "file.from-code/in", "folder": "folder.from-code"}
    assert (report.changed, report.filled) == (["file"], ["folder"])
    assert (top / "file").read_text() == "changed by them"
    assert (top / "folder" / "new").read_text() == "made by them"


def test_what_code_deletes_is_not_the_copy_that_is_kept_of_a_conflict(top: Path) -> None:
    for name in ("x", "x.from-code", "p", "p.from-code"):
        (top / name).write_bytes(DATA)
    base = {name: known(top / name, number) for number, name in enumerate(("x", "x.from-code"), 1)}
    (top / "x").write_text("edited by them")
    report = save(top, base, {"x": inside(2)}, packed("x"))
    assert report.beside == {"x": "x.from-code-2"}
    assert (top / "x.from-code-2").read_bytes() == DATA
    assert not (top / "x.from-code").exists()
    # The same in a folder beside another.
    for name in ("p", "p.from-code"):
        (top / name).unlink()
    (top / "p").write_text("a file of theirs")
    (top / "p.from-code").mkdir()
    (top / "p.from-code" / "x").write_bytes(DATA)
    base = {
        "p": Pair(FOLDER, FOLDER),
        "p/x": Pair(NEVER, inside(3)),
        "p.from-code": Pair(FOLDER, FOLDER),
        "p.from-code/x": known(top / "p.from-code" / "x", 4),
    }
    report = save(top, base, {"p": FOLDER, "p/x": inside(4), "p.from-code": FOLDER}, packed("p/x"))
    assert {path.name: path.read_bytes() for path in (top / "p.from-code").iterdir()} == {"x.from-code": DATA}
    assert report.beside == {"p/x": "p.from-code/x.from-code"}


def test_names_that_code_uses_itself_are_not_given_to_what_is_kept_beside(top: Path) -> None:
    for name in ("x", "y"):
        (top / name).write_text("theirs")
    base = {name: known(top / name, number) for number, name in enumerate(("x", "y"), 1)}
    (top / "y").write_text("edited by them")
    tree = {"x": FOLDER, "x/in": inside(3), "x.from-code": FOLDER, "x.from-code/in": inside(4)}
    tree |= {"y": inside(5), "y.from-code": inside(6)}
    report = save(top, base, tree, packed("x/in", "x.from-code/in", "y", "y.from-code"))
    assert sorted(report.saved) == ["x.from-code/in", "x/in", "y.from-code"]
    assert report.beside == {"y": "y.from-code-2"}
    assert sorted(path.name for path in top.iterdir()) == ["x", "x.from-code", "y", "y.from-code", "y.from-code-2"]


def test_a_file_of_the_persons_beside_another_is_not_taken_for_the_codes(top: Path) -> None:
    (top / "x").mkdir()
    (top / "x.from-code").write_bytes(DATA)
    theirs = (top / "x.from-code").stat()
    base = {"x": Pair(FOLDER, FOLDER), "x.from-code": known(top / "x.from-code", 1)}
    report = save(top, base, {"x": inside(2), "x.from-code": inside(1)}, packed("x"))
    assert (report.saved, report.deleted, report.beside) == (["x"], ["x/"], {})
    assert (top / "x.from-code").stat() == theirs
    assert (top / "x").read_bytes() == DATA


def test_what_replaces_something_private_is_private(top: Path) -> None:
    (top / "file").write_text("theirs")
    (top / "folder").mkdir(0o700)
    (top / "gone").write_text("theirs")
    for name in ("file", "gone"):
        (top / name).chmod(0o600)
    base = {"file": known(top / "file", 1), "folder": Pair(FOLDER, FOLDER), "gone": known(top / "gone", 2)}
    (top / "gone").unlink()
    tree = {"file": FOLDER, "file/in": inside(3), "folder": inside(4), "gone": inside(5)}
    report = save(top, base, tree, packed("file/in", "folder", "gone"))
    assert report.beside == {"gone": "gone.from-code"}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in top.iterdir()}
    assert modes == {"file": 0o700, "folder": 0o600, "gone.from-code": 0o600}


def test_a_file_that_code_moved_and_changed_is_named_where_it_cannot_be_replaced(top: Path) -> None:
    (top / "old").write_text("theirs")
    (top / "old").chmod(0o4755)  # what has rights of its own is not replaced
    base = {"old": Pair(Entry.of((top / "old").stat()), inside(1))}
    tree = {"new": Entry("f", 0o644, Stamp(1, len(DATA), 2, 2))}
    report = save(top, base, tree, packed("new"))
    assert (report.moved, report.beside) == ({"old": "new"}, {"new": "new.from-code"})
    assert ((top / "new").read_text(), (top / "new.from-code").read_bytes()) == ("theirs", DATA)


def test_a_folder_that_the_person_deletes_before_a_file_replaces_it_is_no_conflict(top: Path) -> None:
    base = {"x": Pair(FOLDER, FOLDER), "y": Pair(Entry("f", 0o644, Stamp(1, 1, 1, 1)), inside(1))}
    report = save(top, base, {"x": inside(2), "y": FOLDER}, packed("x"))
    assert (report.saved, report.beside, report.missing, report.folders) == (["x"], {}, [], ["y"])
    assert (top / "x").read_bytes() == DATA
    assert (top / "y").is_dir()


def test_nothing_is_deleted_while_a_database_waits(top: Path) -> None:
    (top / "a.csv").write_text("1,2")
    base = {"a.csv": known(top / "a.csv", 1)}
    report = save(top, base, {"d.db": inside(2), "d.db-wal": inside(3)}, packed())
    assert (report.waiting, report.deleted) == (["a.csv"], [])
    assert (top / "a.csv").exists()


def test_what_a_stopped_run_wrote_replaces_nothing_and_deletes_nothing(top: Path) -> None:
    for name in ("edited", "gone", "moved"):
        (top / name).write_text("theirs")
    base = {name: known(top / name, number) for number, name in enumerate(("edited", "gone", "moved"), 1)}
    tree = {"edited": inside(4), "new": inside(5), "elsewhere": inside(3)}
    report = save(top, base, tree, packed("new", "elsewhere", "edited"), whole=False)
    assert report.saved == ["new", "elsewhere"]
    assert report.beside == {"edited": "edited.from-code"}
    assert sorted(report.waiting) == ["gone", "moved"]
    assert {name: (top / name).read_text() for name in ("edited", "gone", "moved")} == dict.fromkeys(
        ("edited", "gone", "moved"), "theirs"
    )
    # What code has made itself is the code's.
    tree["new"] = inside(6)
    assert save(top, base, tree, packed("new", data=b"from CODE"), whole=False).saved == ["new"]


def test_a_version_beside_is_not_readable_by_more_users_than_the_file(top: Path) -> None:
    (top / "private").write_text("theirs")
    base = {"private": known(top / "private", 1)}
    (top / "private").write_text("changed")
    (top / "private").chmod(0o600)
    assert save(top, base, {"private": inside(2, 0o755)}, packed("private")).beside == {"private": "private.from-code"}
    assert (top / "private.from-code").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_database_that_a_program_has_open_is_not_replaced_moved_or_deleted(top: Path, end: str) -> None:
    for name in ("a.db", "b.db", "c.db"):
        (top / name).write_text("theirs")
        (top / f"{name}{end}").write_text("more")
    base = {name: known(top / name, number) for number, name in enumerate(("a.db", "b.db", "c.db"), 1)}
    report = save(top, base, {"a.db": inside(4), "d.db": inside(2)}, packed("a.db", "d.db"))
    assert report.beside == {"a.db": "a.from-code.db"}
    assert sorted(report.changed) == ["b.db", "c.db"]
    assert (report.saved, report.moved, report.deleted) == (["d.db"], {}, [])
    assert all((top / name).read_text() == "theirs" for name in ("a.db", "b.db", "c.db"))


@pytest.mark.parametrize(("end", "content"), [("-shm", "more"), ("-wal", ""), ("-journal", "")])
def test_a_database_whose_other_files_add_nothing_to_it_is_replaced(top: Path, end: str, content: str) -> None:
    (top / "a.db").write_text("theirs")
    (top / f"a.db{end}").write_text(content)
    report = save(top, {"a.db": known(top / "a.db", 1)}, {"a.db": inside(2)}, packed("a.db"))
    assert (report.saved, report.beside) == (["a.db"], {})


def test_a_folder_that_code_moved_keeps_what_code_does_not_see(top: Path) -> None:
    (top / "project").mkdir(mode=0o700)
    (top / "project" / ".env").write_text("secret")
    (top / "project" / "file").write_text("theirs")
    (top / "taken").mkdir()
    base = {
        "project": Pair(FOLDER, FOLDER),
        "project/file": known(top / "project" / "file", 1),
        "taken": Pair(FOLDER, FOLDER),
    }
    state = (top / "project").stat()
    folder = OpenFolder(str(top), True, True)
    assert rename_folders(folder, base, {"project": "taken", "none": "other"}) == {}
    for new in ("../outside", ".hidden", "taken/.hidden"):
        assert rename_folders(folder, base, {"project": new}) == {}
    assert rename_folders(folder, base, {"project": "new/renamed"}) == {"project": "new/renamed"}
    assert {*base} == {"taken", "new/renamed", "new/renamed/file"}
    moved = (top / "new" / "renamed").stat()
    assert (moved.st_ino, moved.st_mode) == (state.st_ino, state.st_mode)
    assert (top / "new" / "renamed" / ".env").read_text() == "secret"


@pytest.mark.parametrize("cut", [0, 300, 515, 1030, 1540])
def test_what_an_archive_leaves_out_is_named_and_nothing_is_deleted_for_it(top: Path, cut: int) -> None:
    (top / "old").write_text("old")
    base = {"old": known(top / "old", 1)}
    tree = {"a": inside(2), "b": inside(3)}
    report = save(top, base, tree, packed("a", "b")[:cut])
    whole = [name for name, end in (("a", 512 + len(DATA)), ("b", 1536 + len(DATA))) if cut >= end]
    assert report.saved == whole
    assert report.unready == {"it could not be read completely": sorted({"a", "b"} - {*whole})}
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
