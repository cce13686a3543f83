"""Attack: using the operator's folders to reach more of the host. Outcome: one that is open for reading cannot be
changed, and only regular files that are not hidden get into one that is open for writing, and none of them elsewhere."""

import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, small_profile
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

PLANT = """
import os, subprocess
os.chdir('/data/out')
os.makedirs('way/deep'), os.makedirs('.git/hooks'), os.makedirs('folder/..hidden')
for name in ('way/deep/new', 'theirs', '.git/hooks/pre-commit', 'folder/..hidden/x', '.bashrc', 'two\\nlines', '-rf', 'good'):
    open(name, 'w').write('from inside')
os.chmod('good', 0o6777)
for name, target in (('to-file', '/etc/passwd'), ('to-root', '/'), ('to-up', '../..'), ('dangling', '/data/data/x')):
    os.symlink(target, name)
os.mkfifo('pipe')
os.link('good', 'second-name')
"""
CHANGE = """
import os
changed = []
for call in (lambda: os.chmod('kept', 0o777), lambda: os.utime('kept'), lambda: os.unlink('kept'), lambda: os.rmdir('folder'),
             lambda: os.rename('kept', 'moved'), lambda: os.link('kept', 'linked'), lambda: os.symlink('kept', 'linked'),
             lambda: os.truncate('kept', 0), lambda: os.open('kept', os.O_RDWR), lambda: os.mkdir('made'),
             lambda: os.setxattr('kept', 'user.x', b'x'), lambda: os.mkfifo('pipe')):
    os.chdir('/data/data')
    try:
        call()
        changed.append(call.__code__.co_names)
    except OSError:
        pass
print(changed)
"""
CONNECT = """
import socket
with socket.socket(socket.AF_UNIX) as client:
    try:
        client.connect('/data/data/door')
        print('connected')
    except OSError as error:
        print(type(error).__name__)
"""


@asynccontextmanager
async def opened(arena: Arena) -> AsyncIterator[tuple[Service, Path, Path]]:
    """A second server, a folder that its code can read, and one that its code can also write."""
    with host_folder() as folder:
        data, out = folder / "data", folder / "out"
        (data / "folder").mkdir(parents=True)
        (data / "kept").write_text("kept")
        out.mkdir()
        folders = [str(data), f"{out}:rw"]
        profile = small_profile(arena.backend, folder, files={"folders": folders}, pool={"min": 0})
        async with open_service(profile) as service:
            yield service, data, out


def facts(path: Path) -> tuple[float, ...]:
    """What changes with a file, but not when it is only read."""
    state = path.stat()
    return state.st_mode, state.st_nlink, state.st_size, state.st_ctime_ns


async def test_nothing_but_plain_files_gets_into_a_folder_and_none_elsewhere(arena: Arena) -> None:
    async with opened(arena) as (service, data, out):
        for name in ("way", "theirs"):
            (out / name).symlink_to(data / "folder" if name == "way" else data / "kept")
        done = await service.execute(PLANT)
        assert done.status == "ok", done
        assert any("way/deep/new (the code's is way.from-code/deep/new)" in note for note in done.notes), done.notes
        assert [note for note in done.notes if note.startswith("never saved from /data/out") and "to-file" in note]
        assert [note for note in done.notes if "permissions are not carried over: good, second-name" in note]
        files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and not path.is_symlink()}
        own = {"theirs.from-code", "way.from-code/deep/new"}
        assert files == {"two\nlines", "-rf", "good", "second-name", *own}
        for name in files:
            state = (out / name).lstat()
            mode = 0o755 if name in ("good", "second-name") else 0o644
            assert (stat.S_IMODE(state.st_mode), state.st_nlink) == (mode, 1)
            assert (out / name).read_text() == "from inside"
        assert {path.name for path in out.iterdir() if path.is_symlink()} == {"way", "theirs"}
        assert not [*out.rglob(".*")]
        assert not [*(data / "folder").iterdir()]
        assert (data / "kept").read_text() == "kept"


async def test_a_folder_that_is_open_for_reading_cannot_be_changed(arena: Arena) -> None:
    async with opened(arena) as (service, data, _):
        (data / "kept").chmod(0o666)
        before = facts(data / "kept")
        done = await service.execute(CHANGE)
        # A copy belongs to the code: it can change that for itself, and nothing of it is saved.
        assert done.stdout.text == "[]\n" or arena.backend != "embedded", done
        assert done.notes == ()
        assert facts(data / "kept") == before
        assert sorted(path.name for path in data.iterdir()) == ["folder", "kept"]


@pytest.mark.parametrize("mode", [0o777, 0o755])
@pytest.mark.parametrize("first", [True, False], ids=["there before", "made later"])
async def test_code_connects_to_no_socket_that_is_not_open_to_every_user(arena: Arena, mode: int, first: bool) -> None:
    # Named in SECURITY.md: every user of the machine may connect to it, and so may code where the folder is mounted.
    open_to_all = mode == 0o777 and not first and arena.backend == "embedded"
    async with opened(arena) as (service, data, _):
        with socket.socket(socket.AF_UNIX) as server:
            if not first:
                assert (await service.execute("1")).status == "ok"
            server.bind(str(data / "door"))
            os.chmod(data / "door", mode)
            server.listen()
            done = await service.execute(CONNECT)
            expected = ("connected\n",) if open_to_all else ("PermissionError\n", "FileNotFoundError\n")
            assert done.stdout.text in expected, done
