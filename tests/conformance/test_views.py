"""Folders that the operator opened: code sees them as they are now, and nothing of the person's in them is ever lost."""

import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.base.errors import SandboxError, UnknownSession
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

pytestmark = pytest.mark.anyio


@dataclass
class Opened:
    """A service, and folders that code can read, write, and write with deletions."""

    service: Service
    data: Path
    out: Path
    whole: Path
    session_id: str = ""

    async def run(self, code: str, **arguments: Any) -> Execution:
        """Runs code in the same session as before."""
        done = await execute(self.service, code, session_id=self.session_id, **arguments)
        self.session_id = done.session_id
        return done


def files(folder: Path) -> dict[str, str]:
    """The regular files below a folder, and what is in them."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if stat.S_ISREG(path.lstat().st_mode)
    }


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def rows(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [row for (row,) in database.execute("select * from t")]


async def until_made(opened: Opened, path: str) -> None:
    """Waits until code has made a file in its working directory. It polls: nothing else reports that."""
    for _ in range(200):
        with suppress(SandboxError):
            await opened.service.files.copy_out(opened.session_id, path)
            return
        await anyio.sleep(0.1)
    raise TimeoutError(path)


async def run_and_cancel(opened: Opened, code: str) -> None:
    """Runs code, and cancels the call when the code has done all of it."""
    with anyio.CancelScope() as scope:

        async def cancel(stream: str, text: str) -> None:
            scope.cancel()

        await opened.run(f"{code}\nprint('done', flush=True)\nwhile True: pass", on_output=cancel)


async def close(opened: Opened) -> None:
    with suppress(UnknownSession):
        await opened.service.sessions.close(opened.session_id)


def facts(path: Path) -> tuple[int, ...]:
    """What does not change if a file is left alone."""
    state = path.lstat()
    return state.st_ino, state.st_mode, state.st_uid, state.st_gid, state.st_mtime_ns, state.st_ctime_ns


@pytest.fixture
def changes(folder: Path) -> dict[str, Mapping[str, object]]:
    return {
        "files": {"folders": [f"{folder}/data", f"{folder}/out:rw", f"{folder}/whole:rwd"]},
        "artifacts": {"files": 3, "file_size": 1 << 10},
        "limits": {"disk": 1 << 20},
    }


@pytest.fixture
async def opened(profile: Profile, folder: Path) -> AsyncIterator[Opened]:
    data, out, whole = folder / "data", folder / "out", folder / "whole"
    (data / "deep" / "er").mkdir(parents=True)
    (data / "deep" / "er" / "table.csv").write_text("a,b\n1,2\n")
    (data / "link.csv").symlink_to("deep/er/table.csv")
    for top in (out, whole):
        top.mkdir()
        (top / "old.txt").write_text("old\n")
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            yield Opened(service, data, out, whole)


async def test_code_reads_the_folders_and_changes_only_those_that_are_open_for_writing(opened: Opened) -> None:
    done = await opened.run("open('/data/data/deep/er/table.csv').read() + open('/data/out/old.txt').read()")
    assert (done.result, done.notes) == ("'a,b\\n1,2\\nold\\n'", ())
    for code in ("open('/data/data/deep/new', 'w')", "open('/data/data/deep/er/table.csv', 'a')"):
        done = await opened.run(code)
        assert done.status == "error"
        assert "PermissionError" in done.stderr.text or "Read-only" in done.stderr.text
    done = await opened.run(
        "import os; os.makedirs('/data/out/a/b'); os.mkdir('/data/out/empty')\n"
        "for path, text in (('new', 'n'), ('a/b/c', 'c'), ('old.txt', 'changed')):\n"
        "    print(text, end='', file=open(f'/data/out/{path}', 'w'))"
    )
    assert done.notes == (f"saved in {opened.out}: a/b/c, empty/, new, old.txt",)
    assert files(opened.out) == {"new": "n", "a/b/c": "c", "old.txt": "changed"}
    assert (opened.out / "empty").is_dir()
    done = await opened.run("open('/data/out/old.txt').read()")
    assert (done.result, done.notes) == ("'changed'", ())


async def test_what_a_person_edits_is_seen_by_the_next_run_and_never_overwritten(opened: Opened) -> None:
    notes = opened.out / "old.txt"
    assert (await opened.run("open('/data/out/old.txt').read()")).result == "'old\\n'"
    notes.write_text("edited\n")
    done = await opened.run("open('/data/out/old.txt', 'a').write('by code\\n')")
    assert done.notes == (f"saved in {opened.out}: old.txt",)
    assert notes.read_text() == "edited\nby code\n"

    async def edit(stream: str, text: str) -> None:
        if "written" in text:
            notes.write_text("edited meanwhile\n")

    done = await opened.run("open('/data/out/old.txt', 'a').write('again\\n'); print('written')", on_output=edit)
    assert done.notes == (
        f"{opened.out} has its own version of these files, and both are kept: "
        "old.txt (the code's is old.from-code.txt); compare both, and keep what is right",
    )
    both = {"old.txt": "edited meanwhile\n", "old.from-code.txt": "edited\nby code\nagain\n"}
    assert files(opened.out) == both
    done = await opened.run("{name: open(f'/data/out/{name}').read() for name in ('old.txt', 'old.from-code.txt')}")
    assert (eval(done.result or ""), done.notes) == (both, ())


@pytest.mark.parametrize("name", ["data", "out"])
async def test_what_a_person_adds_changes_and_removes_is_seen_by_the_next_run(opened: Opened, name: str) -> None:
    top, place = getattr(opened, name), f"/data/{name}"
    look = (
        "import os\n"
        f"{{os.path.relpath(f'{{top}}/{{name}}', {place!r}): open(f'{{top}}/{{name}}').read() "
        f"for top, _, names in os.walk({place!r}) for name in names if not os.path.islink(f'{{top}}/{{name}}')}}"
    )
    for file in top.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.write_text("first\n")
    before = files(top)
    assert eval((await opened.run(look)).result or "") == before
    (top / "added" / "deep").mkdir(parents=True)
    (top / "added" / "deep" / "file").write_text("added\n")
    (top / "becomes a folder").write_text("file\n")
    assert eval((await opened.run(look)).result or "") == files(top)
    (top / "added" / "deep" / "file").rename(top / "moved")
    (top / "added" / "deep").rmdir()
    (top / "becomes a folder").unlink()
    (top / "becomes a folder").mkdir()
    (top / "becomes a folder" / "file").write_text("in it\n")
    for changed in before:
        (top / changed).write_text("second\n")
    done = await opened.run(look)
    assert (eval(done.result or ""), done.notes) == (files(top), ())


async def test_what_code_deletes_and_moves_stays_unless_the_folder_is_open_for_that(opened: Opened) -> None:
    change = "import os; os.chdir('/data/{0}'); os.unlink('gone'); os.rename('old.txt', 'moved'); os.rename('d', 'e')"
    for top in (opened.out, opened.whole):
        (top / "gone").write_text("gone")
        (top / "d").mkdir()
        (top / "d" / "private").write_text("private")
        (top / "d" / "private").chmod(0o600)
    done = await opened.run(change.format("out"))
    assert done.notes == (
        f"saved in {opened.out}: e/private, moved",
        f"still in {opened.out}, although code deleted or moved them: d, gone, old.txt; "
        "only the operator can let code delete and move files there, with :rwd instead of :rw",
    )
    kept = {"gone": "gone", "old.txt": "old\n", "d/private": "private"}
    assert files(opened.out) == {**kept, "moved": "old\n", "e/private": "private"}
    assert (opened.out / "e" / "private").stat().st_mode & 0o777 == 0o600
    # The folder is what it is: the next run sees that they are still there.
    assert (await opened.run("sorted(os.listdir('/data/out'))")).result == "['d', 'e', 'gone', 'moved', 'old.txt']"
    before = [(opened.whole / name).stat().st_ino for name in ("old.txt", "d/private")]
    # Code does not see these, but they move with their folder.
    (opened.whole / "d").chmod(0o700)
    (opened.whole / "d" / ".env").write_text("hidden")
    (opened.whole / "d" / "link").symlink_to("private")
    done = await opened.run(change.format("whole"))
    assert done.notes == (f"moved in {opened.whole}: d/ to e/, old.txt to moved", f"deleted in {opened.whole}: gone")
    assert (opened.whole / "e").stat().st_mode & 0o777 == 0o700
    assert (opened.whole / "e" / "link").is_symlink()
    (opened.whole / "e" / ".env").unlink()
    (opened.whole / "e" / "link").unlink()
    assert files(opened.whole) == {"moved": "old\n", "e/private": "private"}
    assert [(opened.whole / name).stat().st_ino for name in ("moved", "e/private")] == before
    assert not (opened.whole / "d").exists()


async def test_what_a_person_changed_meanwhile_is_not_deleted(opened: Opened) -> None:
    (opened.whole / "d").mkdir()
    (opened.whole / "d" / "file").write_text("file")

    async def edit(stream: str, text: str) -> None:
        (opened.whole / "old.txt").write_text("edited")
        (opened.whole / "d" / "new").write_text("new")

    code = "import shutil, os; os.unlink('/data/whole/old.txt'); shutil.rmtree('/data/whole/d'); print('deleted')"
    done = await opened.run(code, on_output=edit)
    assert done.notes == (
        f"deleted in {opened.whole}: d/file",
        f"still in {opened.whole}, although code deleted them, since they have changed there or are in use: old.txt",
        f"still in {opened.whole}, although code deleted them, since they have something that code did not see: d",
    )
    assert files(opened.whole) == {"old.txt": "edited", "d/new": "new"}
    done = await opened.run("open('/data/whole/old.txt').read() + open('/data/whole/d/new').read()")
    assert done.result == "'editednew'"


async def test_times_permissions_and_owners_are_kept_in_both_directions(opened: Opened) -> None:
    modes = {"plain": 0o644, "run.sh": 0o755, "private": 0o600, "group": 0o664, "locked": 0o444}
    owner = (4321, 8765) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(opened.out, *owner)
    for name, mode in modes.items():
        path = opened.out / name
        path.write_text("#!/bin/sh\necho ran\n")
        os.chown(path, owner[0] + (name == "group" and os.geteuid() == 0), owner[1])
        path.chmod(mode)
        os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    before = {name: facts(opened.out / name) for name in modes}
    done = await opened.run(
        "import os, subprocess\n"
        f"states = [os.stat(f'/data/out/{{name}}') for name in {[*modes]}]\n"
        "ran = subprocess.run('/data/out/run.sh', capture_output=True, text=True).stdout\n"
        "([state.st_mode & 0o7777 for state in states], {state.st_mtime_ns for state in states}, ran)"
    )
    assert eval(done.result or "") == ([*modes.values()], {1_700_000_000_123_456_789}, "ran\n")
    assert {name: facts(opened.out / name) for name in modes} == before
    done = await opened.run(
        "os.chdir('/data/out')\n"
        f"for name in {[*modes]}:\n"
        "    os.chmod(name, 0o666)\n"
        "    open(name, 'a').write('more')\n"
        "for name, mode in (('new', 0o644), ('new.sh', 0o777), ('secret', 0o600), ('set', 0o6755)):\n"
        "    open(name, 'w'); os.chmod(name, mode)\n"
        "os.utime('new', (5, 5))"
    )
    assert done.notes == (
        f"saved in {opened.out}: group, locked, new, new.sh, plain, private, run.sh, secret, set",
        "files of /data/out whose permissions are not carried over: group, locked, plain, private, run.sh, set; "
        f"if they should have these, set them in {opened.out}",
    )
    for name, mode in modes.items():
        _, is_mode, *is_owner = facts(opened.out / name)[:4]
        assert (is_mode & 0o7777, tuple(is_owner)) == (mode, before[name][2:4])
        assert (opened.out / name).read_text().endswith("more")
    for name, mode in (("new", 0o644), ("new.sh", 0o755), ("secret", 0o600), ("set", 0o755)):
        _, is_mode, *is_owner = facts(opened.out / name)[:4]
        assert (is_mode & 0o7777, tuple(is_owner)) == (mode, owner)
    assert (opened.out / "new").stat().st_mtime == 5


async def test_what_has_the_name_of_a_file_but_cannot_be_seen_by_code_stays(opened: Opened) -> None:
    (opened.out / "link").symlink_to(opened.data / "deep" / "er" / "table.csv")
    (opened.out / "dangling.txt").symlink_to("nowhere")
    (opened.out / "way").symlink_to(opened.data / "deep")
    os.mkfifo(opened.out / "pipe")
    names = ("link", "dangling.txt", "pipe", "way")
    before = [facts(opened.out / name) for name in names]
    done = await opened.run(
        "import os; os.chdir('/data/out'); seen = os.listdir(); os.mkdir('way')\n"
        "for name in ('link', 'dangling.txt', 'pipe', 'way/new'):\n"
        "    open(name, 'w').write(name)\n"
        "os.symlink('old.txt', 'own link'); os.mkfifo('own pipe'); open(b'\\xff', 'w')\n"
        "seen"
    )
    assert done.result == "['old.txt']"
    assert [facts(opened.out / name) for name in names] == before
    special, both = sorted(done.notes, reverse=True, key=lambda note: note.startswith("never"))
    assert special == (
        "never saved from /data/out, since they are not regular files, or have names that are not UTF-8, too long or too deep: "
        "own link, own pipe, \\udcff; write plain files"
    )
    assert both == (
        f"{opened.out} has its own version of these files, and both are kept: "
        "dangling.txt (the code's is dangling.from-code.txt), link (the code's is link.from-code), "
        "pipe (the code's is pipe.from-code), way/new (the code's is way.from-code/new); "
        "compare both, and keep what is right"
    )
    assert files(opened.out) == {
        "old.txt": "old\n",
        "link.from-code": "link",
        "dangling.from-code.txt": "dangling.txt",
        "pipe.from-code": "pipe",
        "way.from-code/new": "way/new",
    }
    assert not (opened.data / "deep" / "new").exists()
    assert (await opened.run("1")).notes == ()


async def test_what_a_stopped_run_wrote_replaces_nothing_of_the_persons(opened: Opened) -> None:
    done = await opened.run("print('f', end='', file=open('/data/out/failed', 'w')); 1 / 0")
    assert (done.status, done.notes) == ("error", (f"saved in {opened.out}: failed",))
    stopped = (
        "import os; os.chdir('/data/out'); print('half', end='', file=open('old.txt', 'w'), flush=True)\n"
        "file = open('half', 'w'); file.write('ha'); file.flush(); os.unlink('failed')\nwhile True: pass"
    )
    done = await opened.run(stopped, timeout=2)
    assert done.status == "timeout"
    assert [note for note in done.notes if str(opened.out) in note] == [
        f"saved in {opened.out}: half",
        f"{opened.out} has its own version of these files, and both are kept: old.txt (the code's is old.from-code.txt); "
        "compare both, and keep what is right",
        f"files in {opened.out} may be incomplete, since the run was stopped, crashed or reached a limit, and "
        "may have been writing them: half; "
        "check them",
    ]
    kept = {"failed": "f", "old.txt": "old\n", "old.from-code.txt": "half"}
    assert files(opened.out) == {**kept, "half": "ha"}
    # What code made itself is the code's to go on with, unless the person has changed it.
    done = await opened.run("file.write('lf'); file.flush()")
    assert files(opened.out) == {**kept, "half": "half"}
    (opened.out / "half").write_text("theirs")
    done = await opened.run("file.write('more'); file.close()")
    assert files(opened.out) == {**kept, "half": "theirs", "half.from-code": "halfmore"}


async def test_what_a_cancelled_run_wrote_replaces_nothing_of_the_persons_either(opened: Opened) -> None:
    await opened.run("1")
    await run_and_cancel(opened, "print('half', end='', file=open('/data/out/old.txt', 'w'), flush=True)")
    done = await opened.run("2")
    assert f"{opened.out} has its own version of these files" in done.notes[0]
    assert files(opened.out) == {"old.txt": "old\n", "old.from-code.txt": "half"}
    assert (await opened.run("open('/data/out/old.txt').read()")).result == "'old\\n'"


async def test_a_run_whose_sandbox_is_lost_says_what_is_lost_with_it(opened: Opened) -> None:
    await opened.run("1")
    done = await opened.run(
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "open('/data/out/new', 'w').write('new')\nwhile True: pass",
        timeout=1,
    )
    assert done.status == "timeout"
    lost = "what the run changed in /data/out, /data/whole is lost; the folders on this machine are as they were; run it again"
    assert lost in done.notes
    assert files(opened.out) == {"old.txt": "old\n"}


async def test_a_run_without_another_after_it_saves_what_it_can(opened: Opened) -> None:
    code = "open('/data/out/new', 'w').write('new')\nwhile True: pass"
    done = await execute(opened.service, code, timeout=1, keep_session=False)
    assert done.status == "timeout"
    assert f"saved in {opened.out}: new" in done.notes
    assert not [note for note in done.notes if "another run" in note]
    assert files(opened.out) == {"new": "new", "old.txt": "old\n"}


async def test_hidden_files_that_code_makes_are_named_once(opened: Opened) -> None:
    hide = "import os; os.chdir('/data/out'); os.makedirs('.github/workflows'); open('.github/workflows/x', 'w')"
    done = await opened.run(f"{hide}; open('.gitignore', 'w'); os.mkdir('d'); open('d/.env', 'w')")
    assert done.notes == (
        "never saved from /data/out, since their names begin with a dot: .github, .gitignore, d/.env; "
        "give them other names",
        f"saved in {opened.out}: d/",
    )
    assert (await opened.run("open('/data/out/d/new', 'w').close()")).notes == (f"saved in {opened.out}: d/new",)
    # Nothing is deleted whose content code has only there.
    (opened.whole / "d").mkdir()
    (opened.whole / "d" / "x").write_text("x")
    done = await opened.run("os.chdir('/data/whole'); os.rename('old.txt', '.old'); os.rename('d', '.d')")
    kept = f"still in {opened.whole}, although code deleted or moved them, since what it may have made of them is not saved"
    assert f"{kept}: d, old.txt" in done.notes
    assert files(opened.whole) == {"old.txt": "old\n", "d/x": "x"}


async def test_no_folder_becomes_a_repository_whose_settings_git_would_obey(opened: Opened) -> None:
    plant = (
        "import os; os.chdir('/data/out'); os.makedirs('docs/objects'); os.makedirs('docs/refs')\n"
        "for name, text in (('HEAD', 'ref: refs/heads/main'), ('config', '[core]\\n\\tfsmonitor = touch /tmp/obeyed\\n')):\n"
        "    open(f'docs/{name}', 'w').write(text)"
    )
    done = await opened.run(plant)
    refused = "docs/HEAD of /data/out was not saved: with a file of that name, its folder could become a repository"
    assert [note for note in done.notes if note.startswith(refused)]
    assert not (opened.out / "docs" / "HEAD").exists()
    # It is said once.
    assert (await opened.run("open('docs/more', 'w').close()")).notes == (f"saved in {opened.out}: docs/more",)


ROWS = "[row for row, in database.execute('select * from t')]"


async def test_a_database_is_saved_when_it_is_whole_and_never_mixed_with_the_persons(opened: Opened) -> None:
    path = opened.out / "u.db"
    with closing(sqlite3.connect(path)) as mine, mine:
        mine.execute("create table t(a)")
        mine.execute("insert into t values(1)")
    done = await opened.run(
        "import sqlite3; database = sqlite3.connect('/data/out/u.db'); database.execute('pragma journal_mode=wal')\n"
        f"database.execute('insert into t values(2)'); database.commit(); {ROWS}"
    )
    assert done.result == "[1, 2]"
    assert done.notes == (
        "databases of /data/out are not saved, since code has not closed them in SQLite: u.db; "
        "close them with close() in another run",
    )
    assert files_of(opened.out) == {"old.txt", "u.db"}
    with closing(sqlite3.connect(path)) as mine, mine:
        mine.execute("insert into t values(1000)")
    done = await opened.run("database.close()")
    assert "u.db (the code's is u.from-code.db)" in done.notes[0]
    assert (rows(path), rows(opened.out / "u.from-code.db")) == ([1, 1000], [1, 2])
    # The person's program has it open, with changes that are not in its own file yet.
    with closing(sqlite3.connect(path)) as mine:
        mine.execute("pragma journal_mode=wal")
        with mine:
            mine.execute("insert into t values(1001)")
        done = await opened.run(
            f"database = sqlite3.connect('/data/out/u.db'); seen = {ROWS}\n"
            "database.execute('insert into t values(3)'); database.commit(); database.close(); seen"
        )
        assert done.result == "[1, 1000, 1001]"
        assert "u.db (the code's is u.from-code-2.db)" in done.notes[0]
    assert rows(path) == [1, 1000, 1001]
    assert rows(opened.out / "u.from-code-2.db") == [1, 1000, 1001, 3]
    # In the usual case, it is simply saved.
    done = await opened.run(
        "database = sqlite3.connect('/data/out/u.db'); database.execute('insert into t values(4)'); database.commit()\n"
        "database.close()"
    )
    assert done.notes == (f"saved in {opened.out}: u.db",)
    assert rows(path) == [1, 1000, 1001, 4]
    assert not [name for name in files_of(opened.out) if name.endswith(("-wal", "-journal", "-shm"))]


async def test_a_journal_that_sqlite_removes_later_undoes_nothing(opened: Opened) -> None:
    open_it = "import sqlite3; database = sqlite3.connect('/data/out/big.db'); database.execute('pragma cache_size=10')"
    fill = "database.execute('create table t(a, b)'); database.commit()\n"
    many = "database.executemany('insert into t values(?, ?)', [(n, 'z' * 500) for n in range(500)])"
    done = await opened.run(f"{open_it}\n{fill}{many}")
    assert [note.partition(":")[0] for note in done.notes] == [
        "databases of /data/out are not saved, since code has not closed them in SQLite"
    ]
    done = await opened.run("database.commit()")
    assert done.notes[0] == f"saved in {opened.out}: big.db"
    with closing(sqlite3.connect(opened.out / "big.db")) as mine:
        assert mine.execute("select count(*) from t").fetchall() == [(500,)]


async def test_a_file_that_code_has_open_is_not_replaced_under_it(opened: Opened) -> None:
    await opened.run("file = open('/data/out/old.txt', 'a')")
    (opened.out / "old.txt").write_text("edited\n")
    done = await opened.run("print('late', file=file, flush=True)")
    assert done.notes == (
        "code still sees the older version of files of /data/out that it has open: old.txt; close them, and run again",
        f"not saved in {opened.out} yet, since code still has them open for writing: old.txt; close them in another run",
    )
    assert files(opened.out) == {"old.txt": "edited\n"}
    done = await opened.run("file.close()")
    assert "old.txt (the code's is old.from-code.txt)" in done.notes[-1]
    assert files(opened.out) == {"old.txt": "edited\n", "old.from-code.txt": "old\nlate\n"}
    assert (await opened.run("open('/data/out/old.txt').read()")).result == "'edited\\n'"


async def test_a_file_of_the_persons_is_replaced_only_when_code_has_closed_it(opened: Opened) -> None:
    done = await opened.run("file, new = [open(f'/data/whole/{name}', 'w') for name in ('old.txt', 'new')]")
    waiting = f"not saved in {opened.whole} yet, since code still has them open for writing: old.txt; close them in another run"
    assert done.notes == (
        f"saved in {opened.whole}: new",
        waiting,
        f"files in {opened.whole} may be incomplete, since code still has them open for writing: new; "
        "close them before a run ends",
    )
    assert files(opened.whole) == {"old.txt": "old\n", "new": ""}
    # Nothing is deleted while its content may be in what is not written yet.
    done = await opened.run(
        "open('/data/whole/kept', 'w').close(); file.write('a'); file.flush(); os = __import__('os')"
    )
    assert done.notes[0] == f"saved in {opened.whole}: kept"
    done = await opened.run("os.unlink('/data/whole/kept'); new.write('b'); new.flush()")
    assert done.notes[-1].startswith(f"files in {opened.whole} may be incomplete")
    assert files(opened.whole) == {"old.txt": "old\n", "new": "b", "kept": ""}
    done = await opened.run("file.close(); new.close()")
    assert done.notes == (f"saved in {opened.whole}: old.txt", f"deleted in {opened.whole}: kept")
    assert files(opened.whole) == {"old.txt": "a", "new": "b"}
    # Without another run, both versions are kept.
    done = await opened.run("file = os.open('/data/whole/old.txt', os.O_WRONLY | os.O_TRUNC)", keep_session=False)
    assert [note.code for note in done.notes] == ["results_beside", "results_incomplete"]
    assert files(opened.whole) == {"old.txt": "a", "old.from-code.txt": "", "new": "b"}


async def test_what_was_in_a_file_is_saved_elsewhere_before_it_is_replaced_also_if_that_waits(opened: Opened) -> None:
    for name in "abc":
        (opened.whole / name).write_text(name)
    chain = "import os; os.chdir('/data/whole'); os.rename('b', 'c'); os.rename('a', 'b'); file = open('c', 'r+')"
    done = await opened.run(chain)
    assert (
        f"not saved in {opened.whole} yet, since code still has them open for writing: b, c; close them in another run"
        in done.notes
    )
    assert {name: (opened.whole / name).read_text() for name in "abc"} == {"a": "a", "b": "b", "c": "c"}
    await opened.run("file.close()")
    assert files(opened.whole) == {"old.txt": "old\n", "b": "a", "c": "b"}
    swap = "os.rename('b', 'd'); os.rename('c', 'b'); os.rename('d', 'c'); file = open('c', 'r+')"
    done = await opened.run(swap)
    assert files(opened.whole) == {"old.txt": "old\n", "b": "a", "c": "b"}
    await opened.run("file.close()")
    assert files(opened.whole) == {"old.txt": "old\n", "b": "b", "c": "a"}


async def test_a_folder_of_the_persons_does_not_end_a_file_that_code_has_open(opened: Opened) -> None:
    await opened.run("file = open('/data/out/log', 'w'); file.write('one'); file.flush()")
    (opened.out / "log").unlink()
    (opened.out / "log").mkdir()
    (opened.out / "log" / "in").write_text("theirs")
    done = await opened.run("file.write('-two'); file.close()")
    assert done.notes[0].startswith("code still sees the older version of files of /data/out")
    assert files(opened.out) == {"old.txt": "old\n", "log/in": "theirs", "log.from-code": "one-two"}
    assert (await opened.run("open('/data/out/log/in').read()")).result == "'theirs'"


async def test_what_a_stopped_run_left_is_incomplete_also_when_the_session_is_closed(opened: Opened) -> None:
    (opened.whole / "gone").write_text("theirs")
    await opened.run("import os; os.chdir('/data/whole')")
    await run_and_cancel(opened, "os.unlink('gone'); print('half', end='', file=open('old.txt', 'w'), flush=True)")
    notes = await opened.service.sessions.close(opened.session_id)
    assert [note.code for note in notes] == ["results_beside", "results_kept"]
    assert files(opened.whole) == {"old.txt": "old\n", "old.from-code.txt": "half", "gone": "theirs"}


async def test_two_that_close_a_session_save_what_it_changed(opened: Opened) -> None:
    (opened.out / "a").write_text("theirs")
    await opened.run("file = open('/data/out/a', 'w'); file.write('all'); file.flush()")
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(close, opened)
    assert files(opened.out) == {"old.txt": "old\n", "a": "theirs", "a.from-code": "all"}


async def test_what_a_crashed_program_wrote_replaces_nothing_of_the_persons(opened: Opened) -> None:
    done = await opened.run(
        "import os, signal\nwith open('/data/out/old.txt', 'w') as file:\n    file.write('h')\n    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)"
    )
    assert done.exit_code == 128 + 11
    assert files(opened.out) == {"old.txt": "old\n", "old.from-code.txt": "h"}


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_what_code_changes_after_its_run_is_saved_when_its_session_is_closed(opened: Opened, end: str) -> None:
    wait = "while not os.path.exists('/sandbox/go'): pass\nopen('/data/out/late', 'w').close(); open('/sandbox/gone', 'w').close()"
    code = f"import os, threading; threading.Thread(target=exec, args=({wait!r}, globals())).start()"
    await opened.run(code)
    await opened.service.files.copy_in(opened.session_id, "go", b"")
    await until_made(opened, "gone")
    notes = await getattr(opened.service.sessions, end)(opened.session_id)
    assert [note.cause for note in notes] == [f"saved in {opened.out}: late"]
    assert files(opened.out) == {"old.txt": "old\n", "late": ""}


async def test_all_files_of_a_run_are_saved_whatever_the_limits_of_artifacts(opened: Opened) -> None:
    done = await opened.run(
        "import os; os.makedirs('/data/out/many/more')\n"
        "for n in range(90): open(f'/data/out/many/more/{n}', 'w').write(str(n))\n"
        "open('/data/out/large', 'w').write('x' * 300_000)"
    )
    assert [note.partition(":")[0] for note in done.notes] == [f"saved in {opened.out}"]
    assert done.notes[0].endswith(" and 81 more")
    saved = files(opened.out)
    assert len(saved) == 92
    assert saved["many/more/89"] == "89"
    assert saved["large"] == "x" * 300_000
    assert (await opened.run("1")).notes == ()


async def test_a_folder_that_is_too_large_to_copy_is_empty_and_can_still_be_written(opened: Opened) -> None:
    (opened.out / "large").write_bytes(bytes(600 << 10))
    code = "import os; open('/data/out/new', 'w').write('n'); open('/data/out/old.txt', 'w').write('o')\nos.listdir('/data/out')"
    done = await opened.run(code)
    assert done.result == "['new', 'old.txt']" or done.result == "['old.txt', 'new']"
    empty, saved, both = done.notes
    assert empty.startswith(f"/data/out is empty, and not a copy of {opened.out}: it has more than the ")
    assert empty.endswith("KiB or 20000 files that can be copied; write() single files into the session")
    assert saved == f"saved in {opened.out}: new"
    assert "old.txt (the code's is old.from-code.txt)" in both
    assert (opened.out / "old.txt").read_text() == "old\n"
    # It is said once.
    assert (await opened.run("1")).notes == ()
    (opened.out / "large").unlink()
    done = await opened.run("open('/data/out/old.txt').read()")
    assert (done.result, done.notes) == ("'old\\n'", ())


async def test_a_new_sandbox_has_the_files_of_its_time_and_a_folder_that_is_gone_is_named(opened: Opened) -> None:
    await opened.run("open('/data/out/old.txt', 'w').write('mine')")
    (opened.out / "old.txt").write_text("theirs")
    await opened.service.sessions.reset(opened.session_id)
    assert (await opened.run("open('/data/out/old.txt').read()")).result == "'theirs'"
    opened.out.rename(opened.out.with_name("elsewhere"))
    for session, first in ((opened.session_id, "not as"), ("", "empty, and not a copy of")):
        opened.session_id = session
        done = await opened.run("open('/data/out/new', 'w').write('n')")
        gone, lost = done.notes
        assert gone.startswith(f"/data/out is {first} {opened.out}")
        assert ": it cannot be read: No such file" in gone
        why = f"{opened.out} on this machine cannot be written: No such file or directory"
        assert lost == f"new of /data/out was not saved: {why}; it is tried again after the next run"
    opened.out.with_name("elsewhere").rename(opened.out)
    assert (await opened.run("1")).notes == (f"saved in {opened.out}: new",)


async def test_extended_attributes_of_the_codes_are_named(opened: Opened) -> None:
    done = await opened.run(
        "import os; open('/data/out/new', 'w').write('n'); os.setxattr('/data/out/new', 'user.x', b'y = 7\\n8 z=')"
    )
    if done.status == "error":
        assert "Operation not supported" in done.stderr.text, done
        assert done.notes == (f"saved in {opened.out}: new",)
        return
    assert done.notes == (f"saved in {opened.out}: new", "extended attributes of files of /data/out are not saved: new")
    assert os.listxattr(opened.out / "new") == []
    assert (opened.out / "new").read_text() == "n"


async def test_a_folder_in_place_of_a_file_and_back(opened: Opened) -> None:
    code = "import os; os.chdir('/data/whole'); os.unlink('old.txt'); os.makedirs('old.txt/d'); open('old.txt/d/x', 'w').write('x')"
    done = await opened.run(code)
    assert done.notes == (f"saved in {opened.whole}: old.txt/d/x", f"deleted in {opened.whole}: old.txt")
    assert files(opened.whole) == {"old.txt/d/x": "x"}
    done = await opened.run("import shutil; shutil.rmtree('old.txt'); open('old.txt', 'w').write('file')")
    assert done.notes == (f"saved in {opened.whole}: old.txt", f"deleted in {opened.whole}: old.txt/")
    assert files(opened.whole) == {"old.txt": "file"}
    # Without the right to delete, the file stays, and the folder gets a name beside it.
    done = await opened.run(code.replace("whole", "out"))
    assert files(opened.out) == {"old.txt": "old\n", "old.from-code.txt/d/x": "x"}
    assert [note.code for note in done.notes] == ["results_beside", "results_kept"]
    assert (await opened.run("open('/data/out/old.from-code.txt/d/x').read()")).result == "'x'"


async def test_a_file_in_a_folder_of_its_own_name_is_the_same_file(opened: Opened) -> None:
    (opened.whole / "old.txt").chmod(0o600)
    inode = (opened.whole / "old.txt").stat().st_ino
    code = "import os; os.chdir('/data/whole'); os.rename('old.txt', 't'); os.mkdir('old.txt'); os.rename('t', 'old.txt/in')"
    done = await opened.run(code)
    assert done.notes == (f"moved in {opened.whole}: old.txt to old.txt/in",)
    state = (opened.whole / "old.txt" / "in").stat()
    assert (state.st_ino, stat.S_IMODE(state.st_mode)) == (inode, 0o600)
    assert stat.S_IMODE((opened.whole / "old.txt").stat().st_mode) == 0o700
    assert (await opened.run("open('old.txt/in', 'a').write('more')")).notes == (
        f"saved in {opened.whole}: old.txt/in",
    )
    assert files(opened.whole) == {"old.txt/in": "old\nmore"}


async def test_a_conflict_that_code_settles_itself_loses_neither_version(opened: Opened) -> None:
    await opened.run("import os; os.chdir('/data/whole'); file = open('old.txt', 'a')")
    (opened.whole / "old.txt").write_text("edited\n")
    await opened.run("file.write('mine\\n'); file.close()")
    assert files(opened.whole) == {"old.txt": "edited\n", "old.from-code.txt": "old\nmine\n"}

    async def edit(stream: str, text: str) -> None:
        (opened.whole / "old.txt").write_text("edited again\n")

    await opened.run("os.rename('old.from-code.txt', 'old.txt'); print('done')", on_output=edit)
    assert files(opened.whole) == {"old.txt": "edited again\n", "old.from-code-2.txt": "old\nmine\n"}


async def test_changes_through_memory_are_saved(opened: Opened) -> None:
    code = (
        "import mmap; file = open('/data/out/old.txt', 'r+b'); memory = mmap.mmap(file.fileno(), 4); file.close(); "
        "memory[0:1] = b'1'"
    )
    for number, change in enumerate((code, "memory[0:1] = b'2'", "memory[0:1] = b'3'; memory.close()"), 1):
        done = await opened.run(change)
        assert done.notes == (f"saved in {opened.out}: old.txt",)
        assert (opened.out / "old.txt").read_text() == f"{number}ld\n"
    assert (await opened.run("1")).notes == ()


async def test_what_cannot_be_read_completely_is_named(opened: Opened) -> None:
    done = await opened.run(
        "import os; os.chdir('/data/out'); open('closed', 'w').write('x'); os.chmod('closed', 0)\n"
        "for n in range(70):\n    os.mkdir('n'); os.chdir('n')\n"
        "open('deep', 'w').write('d')"
    )
    codes = [note.code for note in done.notes]
    assert codes == ["special_files", "results_saved", "result_not_saved"]
    assert done.notes[2].startswith("closed of /data/out was not saved: ")
    assert "it could not be read completely" in done.notes[2]
    done = await opened.run("os.chmod('/data/out/closed', 0o644)")
    assert done.notes == (f"saved in {opened.out}: closed",)


async def test_what_a_program_on_this_machine_writes_to_is_not_replaced(opened: Opened) -> None:
    await opened.run("1")
    with (opened.out / "old.txt").open("a") as log:
        done = await opened.run("open('/data/out/old.txt', 'a').write('by code')")
        assert [note.code for note in done.notes] == ["results_beside"]
        log.write("theirs\n")
    assert files(opened.out) == {"old.txt": "old\ntheirs\n", "old.from-code.txt": "old\nby code"}


async def test_what_a_killed_server_left_is_named_once_in_a_session(opened: Opened) -> None:
    left = opened.out / ".0123456789abcdef.part"
    left.write_text("older")
    os.utime(left, (1, 1))
    done = await opened.run("1")
    assert done.notes == (
        f"left in {opened.out} by a server that was ended while it saved files: .0123456789abcdef.part; "
        "each is another version of a file there; compare them, and delete these",
    )
    assert (await opened.run("1")).notes == ()
    assert left.read_text() == "older"


async def test_a_change_by_a_process_while_the_copy_is_brought_up_to_date_is_saved(opened: Opened) -> None:
    await opened.run(
        "import threading, time\n"
        "def write():\n"
        "    number = 0\n"
        "    while not stop.is_set():\n"
        "        number += 1\n"
        "        open('/data/out/background', 'w').write(str(number))\n"
        "        time.sleep(0.001)\n"
        "stop = threading.Event(); thread = threading.Thread(target=write); thread.start()"
    )
    for number in range(5):
        (opened.out / f"new-{number}").write_text("theirs")
        await opened.run("1")
    await opened.run("stop.set(); thread.join()")
    done = await opened.run("open('/data/out/background').read()")
    assert (opened.out / "background").read_text() == eval(done.result or "")
