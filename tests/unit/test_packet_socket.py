"""The packet socket between server, launcher and sandboxes."""

import socket

import anyio
import pytest

from llm_sandbox_mcp.backends.embedded.descriptors import PacketSocket

pytestmark = pytest.mark.anyio


async def test_closing_ends_a_receive_that_waits() -> None:
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


async def test_closing_ends_a_send_that_waits() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packets = PacketSocket(ours)

    async def send_for_ever() -> None:
        while True:
            await packets.send(bytes(4096))

    async def fill() -> None:
        with pytest.raises(anyio.BrokenResourceError):
            await send_for_ever()

    with theirs, anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill)
            await anyio.wait_all_tasks_blocked()
            packets.close()
