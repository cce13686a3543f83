"""Sandboxes on gVisor, a kernel in user space, which one key of the profile selects.

gVisor differs when a limit is reached: its own threads count, and at the limit on processes the whole sandbox ends.
When memory runs out, code gets no more memory, but is not killed.
"""

import hashlib
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends import copying
from llm_sandbox_mcp.backends.archive import Member
from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.layout import PATH, WORKDIR
from llm_sandbox_mcp.base.errors import SandboxLost
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from tests.engines import MIB, small_profile
from tests.engines.spare import IMAGE, Spare

from .engines import Watched, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def profile(spare_docker: Spare, folder: Path) -> Profile:
    if shutil.which("runsc") is None:
        pytest.skip("gVisor is not available: runsc is not installed")
    settings = {"docker": {"host": spare_docker.address}, "containers": {"image": IMAGE, "runtime": "runsc"}}
    return small_profile("docker", folder, **settings)


async def test_code_has_gvisors_kernel_and_no_network(sandbox: Sandbox) -> None:
    messages = await sandbox.run(["dmesg"], {"PATH": PATH})
    assert b"Starting gVisor" in messages.stdout
    interfaces = await sandbox.run(["sh", "-c", "tail -n +3 /proc/net/dev | grep -v lo:"], {"PATH": PATH})
    assert interfaces.stdout == b""


async def test_code_reaches_what_listens_inside(sandbox: Sandbox) -> None:
    with anyio.fail_after(60):
        async with sandbox.listen() as listener:
            code = f"import socket; socket.create_connection(('127.0.0.1', {listener.port}), 20).sendall(b'here')"
            async with (
                await sandbox.spawn(["/usr/bin/python3", "-c", code], {"PATH": PATH}),
                await listener.accept() as stream,
            ):
                assert await stream.receive() == b"here"


async def test_runs_keep_their_state_and_report_their_exit_codes(service: Service) -> None:
    first = await execute(service, "x = 41")
    left = await execute(service, "x += 1\nimport sys\nsys.exit(7)", session_id=first.session_id)
    assert (left.status, left.exit_code, left.session_state) == ("error", 7, "kept")
    slow = await execute(service, "import time\ntime.sleep(100)", session_id=first.session_id, timeout=0.5)
    assert (slow.status, slow.exit_code, slow.session_state) == ("timeout", 130, "kept")
    assert (await execute(service, "x", session_id=first.session_id)).result == "42"
    ended = await execute(service, "import os\nos._exit(9)", session_id=first.session_id)
    assert (ended.status, ended.exit_code) == ("error", 9)
    assert any("files are kept" in note for note in ended.notes)


async def test_a_full_disk_is_distinguished_from_other_errors(service: Service) -> None:
    written = await execute(service, "with open('big', 'wb') as file:\n    while True: file.write(bytes(1 << 20))")
    assert written.status == "disk_limit"
    other = await execute(service, "import os\nos.remove('big')\n1 / 0", session_id=written.session_id)
    assert other.status == "error"


async def test_files_go_in_and_come_out_the_same(sandbox: Sandbox) -> None:
    data = random.Random(1).randbytes(5 * MIB)

    async def once() -> AsyncIterator[bytes]:
        yield data

    await copying.copy_in(sandbox, "deep/file", len(data), once)
    assert [*await sandbox.list_files()] == ["deep/file"]
    got: list[Member] = []

    async def take(member: Member) -> None:
        got.append(member)

    await copying.copy_out(sandbox, WORKDIR, ["deep/file"], len(data), take)
    assert [hashlib.sha256(member.content or b"").digest() for member in got] == [hashlib.sha256(data).digest()]


BOMBS = {
    "memory": "held = []\nwhile True: held.append(bytearray(1 << 20))",
    "processes": "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(100)",
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_at_a_limit_files_reported_as_kept_are_kept_and_lost_containers_are_removed(
    service: Service, spare_docker: Spare, folder: Path, bomb: str
) -> None:
    watched = Watched(spare_docker.address, folder / "runtime")
    first = await execute(service, "open('there', 'w').write('yes')")
    before = watched.now()
    try:
        result = await execute(service, BOMBS[bomb], session_id=first.session_id, timeout=5)
        assert result.status != "ok"
        kept = any("variables are lost, files are kept" in note for note in result.notes)
    except SandboxLost:
        kept = False
    again = await execute(
        service, "import os\n(os.path.exists('there'), 'held' in globals())", session_id=first.session_id
    )
    assert again.result == f"({kept}, False)"
    if not kept:
        assert any("started fresh" in note for note in again.notes)
        await until(lambda: not watched.now() & before, 10)
