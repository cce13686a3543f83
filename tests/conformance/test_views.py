"""Folders that the operator opened: code reads them, and what it changes in one that is open for writing is saved."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.profile import Profile
from llm_sandbox_mcp.results import Execution
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.wiring import open_service

pytestmark = pytest.mark.anyio


@dataclass
class Opened:
    """A service, the folder that code can read, and the one that it can also write."""

    service: Service
    data: Path
    out: Path
    session_id: str = ""

    async def run(self, code: str, **arguments: float) -> Execution:
        """Runs code in the same session as before."""
        done = await self.service.execute(code, session_id=self.session_id, **arguments)  # type: ignore[arg-type]
        self.session_id = done.session_id
        return done

    def saved(self) -> dict[str, str]:
        """The files below the folder that is open for writing."""
        return {str(path.relative_to(self.out)): path.read_text() for path in self.out.rglob("*") if path.is_file()}


@pytest.fixture
def changes(folder: Path) -> dict[str, Mapping[str, object]]:
    return {
        "files": {"folders": [f"{folder}/data", f"{folder}/out:rw"]},
        "artifacts": {"files": 3, "file_size": 1 << 10},
        "limits": {"disk": 1 << 20},
    }


@pytest.fixture
async def opened(profile: Profile, folder: Path) -> AsyncIterator[Opened]:
    data, out = folder / "data", folder / "out"
    (data / "deep" / "er").mkdir(parents=True)
    (data / "deep" / "er" / "table.csv").write_text("a,b\n1,2\n")
    (data / "link.csv").symlink_to("deep/er/table.csv")
    out.mkdir()
    (out / "old.txt").write_text("old\n")
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            yield Opened(service, data, out)


async def test_code_reads_the_folders_and_changes_only_the_one_that_is_open_for_writing(opened: Opened) -> None:
    done = await opened.run("open('/data/data/deep/er/table.csv').read() + open('/data/out/old.txt').read()")
    assert (done.result, done.notes) == ("'a,b\\n1,2\\nold\\n'", ())
    for code in ("open('/data/data/deep/new', 'w')", "open('/data/data/deep/er/table.csv', 'a')"):
        done = await opened.run(code)
        assert done.status == "error"
        assert "PermissionError" in done.stderr.text or "Read-only" in done.stderr.text
    done = await opened.run(
        "import os; os.makedirs('/data/out/a/b')\n"
        "for path, text in (('new', 'n'), ('a/b/c', 'c'), ('old.txt', 'changed')):\n"
        "    print(text, end='', file=open(f'/data/out/{path}', 'w'))"
    )
    assert done.notes == (f"saved in {opened.out}: a/b/c, new, old.txt",)
    assert opened.saved() == {"new": "n", "a/b/c": "c", "old.txt": "changed"}
    done = await opened.run("open('/data/out/old.txt').read()")
    assert (done.result, done.notes) == ("'changed'", ())


async def test_what_a_failed_run_wrote_is_saved_and_what_a_stopped_one_wrote_only_later(opened: Opened) -> None:
    done = await opened.run("print('f', end='', file=open('/data/out/failed', 'w')); 1 / 0")
    assert (done.status, done.notes) == ("error", (f"saved in {opened.out}: failed",))
    stopped = "file = open('/data/out/half', 'w'); file.write('ha'); file.flush()\nwhile True: pass"
    done = await opened.run(stopped, timeout=2)
    assert done.status == "timeout"
    assert [note for note in done.notes if note.startswith("changed files of /data/out that are not saved yet: 1; ")]
    assert opened.saved() == {"failed": "f", "old.txt": "old\n"}
    done = await opened.run("file.write('lf'); file.close()")
    assert done.notes == (f"saved in {opened.out}: half",)
    assert opened.saved() == {"failed": "f", "half": "half", "old.txt": "old\n"}


async def test_a_file_that_is_too_large_and_files_that_are_too_many_are_named(opened: Opened) -> None:
    done = await opened.run("print('x' * 2000, file=open('/data/out/large', 'w'))")
    assert done.notes == (
        "large of /data/out was not saved: it has 1.954KiB; the limit is 1KiB; write a smaller file, or several files",
    )
    done = await opened.run("import os; os.remove('/data/out/large')\nfor n in range(5): open(f'/data/out/{n}', 'w')")
    [saved, left] = done.notes
    assert saved.startswith(f"saved in {opened.out}: ") and saved.count(",") == 2
    assert left == (
        "changed files of /data/out that are not saved yet: 2; at most 3 are saved per run; "
        "they are saved when another run of this session ends"
    )
    done = await opened.run("1")
    assert [note.count(",") for note in done.notes] == [1]
    assert {*opened.saved()} == {"old.txt", *"01234"}


async def test_a_folder_that_is_too_large_to_copy_is_empty_and_can_still_be_written(opened: Opened) -> None:
    (opened.out / "large").write_bytes(bytes(600 << 10))
    done = await opened.run("import os; open('/data/out/new', 'w').write('n'); os.listdir('/data/out')")
    assert done.result == "['new']"
    empty, saved = done.notes
    assert empty.startswith(f"/data/out is empty, and not a copy of {opened.out}: it has more than the ")
    assert empty.endswith("KiB or 4000 files that can be copied; write() single files into the session")
    assert saved == f"saved in {opened.out}: new"


async def test_a_new_sandbox_has_the_files_of_its_time_and_what_cannot_be_read_is_named(opened: Opened) -> None:
    await opened.run("open('/data/out/old.txt', 'w').write('mine')")
    (opened.out / "old.txt").write_text("theirs")
    await opened.service.sessions.reset(opened.session_id)
    assert (await opened.run("open('/data/out/old.txt').read()")).result == "'theirs'"
    opened.out.rename(opened.out.with_name("elsewhere"))
    await opened.service.sessions.reset(opened.session_id)
    done = await opened.run("open('/data/out/new', 'w').write('n')")
    first, second = done.notes
    assert first.startswith(f"/data/out is empty, and not a copy of {opened.out}: it cannot be read: No such file")
    # The path is cut if it is long.
    assert second.startswith("new of /data/out was not saved: '/")
    assert second.endswith(" on this machine cannot be written: No such file or directory")
