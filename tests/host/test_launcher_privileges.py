"""The launcher never starts a sandbox with the rights of root."""

import os
import secrets
import socket
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.embedded.launching import open_launcher

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.skipif(os.geteuid() != 0, reason="only a launcher of root has such rights")
@pytest.mark.parametrize("uid", [None, 0])
async def test_a_sandbox_with_the_rights_of_root_does_not_start(tmp_path: Path, uid: int | None) -> None:
    """If root starts bubblewrap, root in the sandbox can become root on the machine, through core_pattern."""
    made = tmp_path / "made"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, anyio.fail_after(60):
        async with open_launcher() as launcher, anyio.create_task_group() as tasks:
            tasks.start_soon(launcher.serve)
            runtime = tmp_path / "runtime"
            assert await launcher.start(f"test-{secrets.token_hex(4)}", runtime, {"stage": tmp_path}, ["/bin/true"])
            limits = {"memory": 2**26, "pids": 8, "cpus": 1.0}
            launched = await launcher.launch("one", ["/usr/bin/touch", str(made)], uid, limits, theirs)
            await launched.exited.wait()
            tasks.cancel_scope.cancel()
    assert "refusing to start a sandbox with the privileges of root" in launched.log
    assert not made.exists()
