"""Attack: a crafted archive comes out of the sandbox instead of the one of `tar`. Outcome: its members are dropped, and
what the server reads is bounded."""

import pytest

from llm_sandbox_mcp.base.errors import SandboxError
from tests.engines import MIB
from tests.hostile.calls import NONCE, RESUMED
from tests.hostile.conftest import Arena
from tests.hostile.test_output_flood import resident

pytestmark = pytest.mark.anyio

TAKE_OVER = (
    RESUMED
    + """
import io, os, signal, tarfile
def members():
    for name, kind, size in MEMBERS:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.mode = kind, '/etc/passwd', 0o4755
        info.size = size
        yield info.tobuf(tarfile.GNU_FORMAT) + b'x' * min(size, 1000) + bytes(-min(size, 1000) % 512)
if os.fork() == 0:
    os.setsid()
    while True:
        stay_awake()
        for name in filter(str.isdigit, os.listdir('/proc')):
            try:
                if open(f'/proc/{name}/comm').read() == 'tar\\n':
                    os.kill(int(name), signal.SIGSTOP)
                    out = os.open(f'/proc/{name}/fd/1', os.O_WRONLY)
                    for block in members():
                        os.write(out, block)
                    if ENDLESS:
                        while True:
                            os.write(out, ENDLESS * 65536)
                    os.write(out, bytes(1024))
                    os.kill(int(name), signal.SIGKILL)
                    os.close(out)
            except OSError:
                pass
open('file', 'w').write('honest')
"""
)

CRAFTED = [
    *(("file", kind, 0) for kind in (b"1", b"2", b"3", b"4", b"5", b"6")),
    *(("../../../etc/passwd", b"0", 5), ("/etc/passwd", b"0", 5), ("other", b"0", 5), ("file/../x", b"0", 5)),
]


@pytest.mark.in_turns
async def test_crafted_members_are_dropped(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_sandbox_mcp.backends.copying.COPY_SECONDS", 1.0)
    result = await arena.attack(f"ENDLESS, MEMBERS = b'', {CRAFTED!r}\n" + TAKE_OVER)
    assert result.status == "ok", result
    assert {artifact.name for artifact in result.artifacts} <= {"file"}
    assert {artifact.name for artifact in arena.service.files.artifacts(result.session_id)} <= {"file"}


@pytest.mark.parametrize(
    "members", [[("file", b"0", 1 << 40)], [("x" * 200, b"0", 1 << 33)], [("file", b"L", 1 << 30)], []]
)
@pytest.mark.parametrize("byte", [b"\0", b"x"])
async def test_an_endless_archive_is_abandoned(
    arena: Arena, members: list[tuple[str, bytes, int]], byte: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_sandbox_mcp.backends.copying.COPY_SECONDS", 1.0)
    before = resident()
    result = await arena.attack(f"ENDLESS, MEMBERS = {byte!r}, {members!r}\n" + TAKE_OVER)
    assert result.status == "ok", result
    try:
        copied = await arena.service.files.copy_out(result.session_id, "file")
    except SandboxError:
        pass
    else:
        # `tar` finished before the hostile code found it.
        assert copied.size == len("honest")
    assert resident() - before < 20 * MIB


async def test_a_report_that_names_files_which_cannot_be_copied_gives_no_artifacts(arena: Arena) -> None:
    result = await arena.attack(
        NONCE
        + """
import json
names = ['../../etc/passwd', '/etc/passwd', '..', '', '.', 'missing', 'a/../../x', '-rf', '--help', '\\0', 'fifo', 'folder', 'link']
os.mkfifo('fifo'); os.mkdir('folder'); os.symlink('/etc/passwd', 'link')
end(json.dumps({'status': 'ok', 'exit_code': 0, 'files': names, 'figures': names}).encode())
"""
    )
    assert result.artifacts == (), result
