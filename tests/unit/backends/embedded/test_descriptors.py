"""The packet socket between server, launcher and sandboxes."""

import socket
import subprocess
import sys

import anyio
import pytest

from llm_sandbox_mcp.backends.embedded.descriptors import PacketSocket

pytestmark = pytest.mark.anyio


async def test_closing_ends_a_waiting_receive() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packets = PacketSocket(ours)
    ended = anyio.Event()

    async def receive() -> None:
        with pytest.raises(anyio.EndOfStream):
            await packets.receive()
        ended.set()

    with theirs, anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            packets.close()
            await ended.wait()


async def test_closing_ends_a_waiting_send() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packets = PacketSocket(ours)

    async def send_forever() -> None:
        while True:
            await packets.send(bytes(4096))

    async def fill() -> None:
        with pytest.raises(anyio.BrokenResourceError):
            await send_forever()

    with theirs, anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill)
            await anyio.wait_all_tasks_blocked()
            packets.close()


FILL = """
import anyio, os, resource, socket
from llm_sandbox_mcp.backends.embedded.descriptors import PacketSocket
from llm_sandbox_mcp.base.errors import Unavailable

async def main():
    # Only here, after all imports: an ordinary user may not be able to read the modules.
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(54_321)
        os.setuid(54_321)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packets = PacketSocket(ours)
    try:
        for _ in range(1000):
            await packets.send(b"x", (0, 0, 0, 0))
    except Unavailable as error:
        print(error)
    # Descriptors that are received make room for others.
    theirs.setblocking(False)
    taken = socket.recv_fds(theirs, 1, 4)[1] + socket.recv_fds(theirs, 1, 4)[1]
    await packets.send(b"x", (0, 0, 0, 0))

anyio.run(main)
"""


def test_sending_works_again_after_too_many_descriptors_were_in_flight() -> None:
    """The kernel limits descriptors in flight only for ordinary users, by their limit of open files."""
    done = subprocess.run([sys.executable, "-c", FILL], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith(
        "no process can be started: other processes of the server's user have all the descriptors in flight"
    )
