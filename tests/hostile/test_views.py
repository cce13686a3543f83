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
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, small_profile
from tests.hostile.calls import HUNT, RESUMED
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
async def opened(arena: Arena, end: str = "rw") -> AsyncIterator[tuple[Service, Path, Path]]:
    """A second server, a folder that its code can read, and one that its code can also write."""
    with host_folder() as folder:
        data, out = folder / "data", folder / "out"
        (data / "folder").mkdir(parents=True)
        (data / "kept").write_text("kept")
        out.mkdir()
        folders = [str(data), f"{out}:{end}"]
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
        done = await execute(service, PLANT)
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
        done = await execute(service, CHANGE)
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
                assert (await execute(service, "1")).status == "ok"
            server.bind(str(data / "door"))
            os.chmod(data / "door", mode)
            server.listen()
            done = await execute(service, CONNECT)
            expected = ("connected\n",) if open_to_all else ("PermissionError\n", "FileNotFoundError\n")
            assert done.stdout.text in expected, done


FORGE = (
    RESUMED
    + """
import os, signal, tarfile, io
os.makedirs('/data/out/many', exist_ok=True)
for number in range(1500):
    open(f'/data/out/many/{number}', 'w').write('x')
NAMES = ['../escaped', '.envrc', '.git/hooks/pre-commit', 'project.git/hooks/update', 'many/../../escaped']
records = [b'f 755 %d 5 1.0000000000 1.0000000000 %s\\0' % (number + 100, name.encode()) for number, name in enumerate(NAMES)]
made = io.BytesIO()
with tarfile.open(fileobj=made, mode='w', format=tarfile.GNU_FORMAT) as archive:
    for name in NAMES:
        member = tarfile.TarInfo(name)
        member.size = 5
        archive.addfile(member, io.BytesIO(b'evil!'))
members = made.getvalue()[:1024 * len(NAMES)]
started = os.pipe()
if os.fork() == 0:
    os.setsid()
    done = {os.getpid()}
    os.write(started[1], b'x')
    while True:
        stay_awake()
        for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):
            try:
                command = b'' if pid in done else open(f'/proc/{pid}/cmdline', 'rb').read()
                forged = b''.join(records) if command.startswith(b'find\\0/data/out\\0-mindepth') else b''
                if command.startswith(b'tar\\0-c\\0') and b'\\0-C\\0/data/out\\0' in command:
                    forged = members
                if forged:
                    done.add(pid)
                    os.kill(pid, signal.SIGSTOP)
                    with open(f'/proc/{pid}/fd/1', 'wb', buffering=0) as output:
                        output.write(forged)
                    os.kill(pid, signal.SIGCONT)
                    open('/sandbox/forged', 'a').write('x')
            except OSError:
                pass
os.read(started[0], 1)
"""
)
NAMES = """
import os, subprocess
os.chdir('/data/out')
subprocess.run('chmod -R u+w .git', shell=True)
os.makedirs('.git/hooks', exist_ok=True)
for name in ('.git/hooks/pre-commit', '.envrc', 'deep/.envrc', '.git/config', '.git/new', 'sub/.git/config'):
    os.makedirs(os.path.dirname(name) or '.', exist_ok=True)
    open(name, 'w').write('[core]\\n\\tfsmonitor = touch /tmp/obeyed\\n')
for name in ('x' * 255, 'A', 'a', '\\u00e9', 'e\\u0301', ' ', '*', '$(touch x)', '-C', '\\x1b[31mred', '/'.join(['n'] * 60)):
    os.makedirs(os.path.dirname(name) or '.', exist_ok=True)
    open(name, 'w').write(repr(name))
os.symlink('../../../../../../root/.ssh', 'keys')
"""
SWAP = """
import os, threading
os.makedirs('/data/out/both', exist_ok=True)
os.makedirs('/data/out/kept', exist_ok=True)
open('/data/out/both/kept', 'w').write('from inside')
def swap():
    while True:
        try:
            os.rename('/data/out/both', '/data/out/aside')
            os.symlink('/data/data', '/data/out/both')
            os.unlink('/data/out/both')
            os.rename('/data/out/aside', '/data/out/both')
        except OSError:
            pass
threading.Thread(target=swap, daemon=True).start()
"""


async def test_no_name_of_the_codes_is_obeyed_or_mistaken_for_another(arena: Arena) -> None:
    async with opened(arena) as (service, data, out):
        (out / ".git").mkdir()
        (out / ".git" / "config").write_text("[core]\n\tbare = false\n")
        before = facts(out / ".git" / "config"), facts(out / ".git")
        done = await execute(service, NAMES)
        assert done.status == "ok", done
        assert (facts(out / ".git" / "config"), facts(out / ".git")) == before
        assert {str(path.relative_to(out)) for path in out.rglob(".*")} == {".git"}
        saved = {
            str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file() and ".git" not in path.parts
        }
        long, deep = "x" * 255, "/".join(["n"] * 60)
        assert {*saved} == {*(long, "A", "a", "\u00e9", "e\u0301", " ", "*", "$(touch x)", "-C", "\x1b[31mred", deep)}
        assert all(path.read_text() == repr(name) for name, path in saved.items())
        assert "\x1b" not in "".join(done.notes)
        assert not (data / "keys").exists()


async def test_folders_that_are_swapped_for_links_lead_nowhere(arena: Arena) -> None:
    async with opened(arena) as (service, data, out):
        before = facts(data / "kept"), facts(data / "folder")
        session = ""
        for number in range(4):
            done = await execute(
                service, SWAP if not session else f"open('/data/out/kept/{number}', 'w')", session_id=session
            )
            session = done.session_id
            (out / "theirs").write_text(str(number))
        assert (facts(data / "kept"), facts(data / "folder")) == before
        for path in out.rglob("*"):
            assert not path.is_symlink()
            # What code can read, it can also write: through the link, it reads the other folder.
            assert not path.is_file() or path.read_text() in ("from inside", "", "3", "kept")


async def test_what_code_hides_from_a_list_is_not_taken_for_deleted(arena: Arena) -> None:
    async with opened(arena, "rwd") as (service, _, out):
        (out / "d").mkdir()
        (out / "d" / "file").write_text("theirs")
        hide = "import os; os.mkdir('/data/out/new'); open('/data/out/new/x', 'w'); os.chmod('/data/out/d', 0)"
        done = await execute(service, hide)
        [note] = done.notes
        assert "what is in /data/out cannot be listed" in note
        assert (out / "d" / "file").read_text() == "theirs"
        shown = "os.chmod('/data/out/d', 0o755); open('/data/out/d/file').read()"
        done = await execute(service, shown, session_id=done.session_id)
        assert (done.result, done.notes) == ("'theirs'", (f"saved in {out}: new/x",))


async def test_a_forged_list_and_a_forged_archive_lead_nowhere(arena: Arena) -> None:
    async with opened(arena, "rwd") as (service, data, out):
        for name in (".git/hooks", "project.git/hooks", "project.git/objects", "project.git/refs"):
            (out / name).mkdir(parents=True)
        for name in (".git/hooks/pre-commit", "project.git/hooks/update", "project.git/HEAD"):
            (out / name).write_text("ref: refs/heads/main" if name.endswith("HEAD") else "theirs")
            (out / name).chmod(0o755)
        before = {path: facts(path) for path in (*out.rglob("*"), out.parent, data)}
        session = (await execute(service, FORGE, timeout=20)).session_id
        for number in range(3):
            await execute(service, f"open('/data/out/{number}', 'w')", session_id=session)
        done = await execute(service, "open('/sandbox/forged').read()", session_id=session)
        assert "x" in (done.result or ""), "nothing was forged"
        assert {path: facts(path) for path in before} == before
        assert not (out.parent / "escaped").exists()
        assert {path.name for path in out.iterdir()} <= {"many", ".git", "project.git", "0", "1", "2"}
        assert not [path for path in out.rglob("*") if path.is_file() and path.read_text() == "evil!"]


async def test_code_that_kills_every_tool_loses_nothing_of_what_it_wrote(arena: Arena) -> None:
    async with opened(arena) as (service, _, out):
        session = (await execute(service, HUNT % "KILL")).session_id
        for number in range(10):
            (out / "theirs").write_text(f"{number}")
            code = f"open('/data/out/{number}', 'w').write('x' * 300_000)\nopen('/data/out/theirs').read()"
            done = await execute(service, code, session_id=session)
            assert done.result == f"'{number}'", (number, done.notes)
            assert [note for note in done.notes if "saved" in note] == [f"saved in {out}: {number}"], done
            assert (out / f"{number}").stat().st_size == 300_000
