"""The server's side of an embedded sandbox; the test plays the part of PID 1."""

import socket

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.backends.base import Usage
from llm_sandbox_mcp.backends.embedded.sandbox import EmbeddedSandbox
from llm_sandbox_mcp.base.errors import SandboxLost
from tests.memory.clock import BACKEND
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio


async def _nothing() -> None:
    """Ends the sandbox: there is no process to end."""


async def _no_usage() -> Usage:
    return Usage()


@pytest.mark.parametrize("turns", range(6))
async def test_a_listener_that_arrives_while_its_scope_is_cancelled_is_closed(turns: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sandbox = EmbeddedSandbox("name", POLICY, ours, _no_usage, _nothing, anyio.CapacityLimiter(1))

    async def listen() -> None:
        async with sandbox.listen() as listener:
            await listener.accept()

    with theirs, anyio.fail_after(30):
        async with anyio.create_task_group() as serving:
            serving.start_soon(sandbox.serve)
            async with anyio.create_task_group() as listening:
                listening.start_soon(listen)
                await anyio.wait_readable(theirs)
                _, name, _ = theirs.recv(100).split(b"\0")
                with socket.create_server(("127.0.0.1", 0)) as made:
                    port = made.getsockname()[1]
                    socket.send_fds(theirs, [b"L\0" + name], [made.fileno()])
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                listening.cancel_scope.cancel()
            # The sandbox reads everything that is left before it notices that the other side is closed.
            theirs.close()
        await sandbox.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)


@pytest.mark.parametrize("anyio_backend", [BACKEND], ids=["jumping"])
@pytest.mark.parametrize(("pids", "cpus", "seconds"), [(50, 1.0, 6), (200, 0.1, 45)])
async def test_a_sandbox_in_which_nothing_starts_is_ended_after_the_time_that_a_busy_one_needs(
    anyio_backend: tuple[str, object], pids: int, cpus: float, seconds: int
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    policy = POLICY.model_copy(update={"pids": pids, "cpus": cpus})
    sandbox = EmbeddedSandbox("name", policy, ours, _no_usage, _nothing, anyio.CapacityLimiter(1))
    start = anyio.current_time()
    with theirs, pytest.raises(SandboxLost, match=f"no process started in the sandbox for {seconds} s"):
        await sandbox.spawn(["true"], {})
    assert seconds <= anyio.current_time() - start < seconds + 1
    assert not sandbox.alive
    await sandbox.close()
