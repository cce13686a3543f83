"""Both protocols in which a cluster carries the streams of a process, over a real websocket to a fake cluster."""

import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from aiohttp import web

from llm_sandbox_mcp.backends.kubernetes import channels
from llm_sandbox_mcp.backends.kubernetes.channels import PROTOCOLS, Channels

pytestmark = pytest.mark.anyio

Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def connected(serve: Serve, protocol: str = PROTOCOLS[0], *, framed: bool = False) -> AsyncIterator[Channels]:
    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=[protocol], max_msg_size=0)
        await socket.prepare(request)
        await serve(socket)
        await socket.close()
        return socket

    application = web.Application()
    application.router.add_get("/", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        with anyio.fail_after(30):
            async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:
                channels = Channels(
                    await session.ws_connect(f"http://{host}:{port}/", protocols=PROTOCOLS), framed=framed
                )
                tasks.start_soon(channels.pump)
                yield channels
                tasks.cancel_scope.cancel()
    finally:
        await runner.cleanup()


async def read(channels: Channels) -> tuple[bytes, bytes]:
    out = b"".join([part async for part in channels.stdout])
    return out, b"".join([part async for part in channels.stderr])


def exited(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return b"\x03" + json.dumps(status if code else {"status": "Success"}).encode()


async def echo(socket: web.WebSocketResponse) -> None:
    """Does what a cluster does for two messages to a `cat` that prints an error when it ends."""
    for _ in range(2):
        message = await socket.receive()
        assert message.data[:1] == b"\x00"
        await socket.send_bytes(b"\x01" + message.data[1:])
    await socket.send_bytes(b"\x02done")
    await socket.send_bytes(exited(7))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_both_protocols_carry_streams_and_the_exit_code(protocol: str) -> None:
    async with connected(echo, protocol) as channels:
        await channels.stdin.send(b"one ")
        await channels.stdin.send(b"two")
        assert await read(channels) == (b"one two", b"done")
        assert await channels.exit_code() == 7


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_end_of_the_input_is_an_empty_frame(protocol: str) -> None:
    got = bytearray()

    async def take(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            got.extend(message.data[1:])
            if got.endswith(struct.pack(">I", 0)):
                break
        await socket.send_bytes(exited(0))

    async with connected(take, protocol, framed=True) as channels:
        await channels.stdin.send(b"hello")
        await channels.stdin.aclose()
        assert await read(channels) == (b"", b"")
        assert await channels.exit_code() == 0
    assert bytes(got) == struct.pack(">I", 5) + b"hello" + struct.pack(">I", 0)


async def test_a_cluster_that_disconnects_leaves_no_exit_code() -> None:
    async def disconnect(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01half")

    async with connected(disconnect) as channels:
        assert await read(channels) == (b"half", b"")
        assert await channels.exit_code() is None
        with pytest.raises(anyio.BrokenResourceError):
            await channels.stdin.send(bytes(1 << 24))


async def test_a_connection_that_stays_open_after_the_exit_code_blocks_nothing() -> None:
    received = anyio.Event()

    async def stay(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01all")
        await socket.send_bytes(exited(3))
        await received.wait()

    async with connected(stay) as channels:
        assert await read(channels) == (b"all", b"")
        assert await channels.exit_code() == 3
        received.set()


async def test_an_exit_code_is_still_received_after_the_streams_were_closed() -> None:
    closed = anyio.Event()

    async def late(socket: web.WebSocketResponse) -> None:
        await closed.wait()
        await socket.send_bytes(b"\x01unread")
        await socket.send_bytes(exited(137))

    async with connected(late) as channels:
        channels.close()
        closed.set()
        assert await read(channels) == (b"", b"")
        assert await channels.exit_code() == 137


async def test_a_flood_is_read_in_portions_with_a_pause_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    message = b"\x01" + bytes(1000)

    async def flood(socket: web.WebSocketResponse) -> None:
        for _ in range(300):
            await socket.send_bytes(message)
        await socket.receive()

    # The first pause is longer than this test.
    monkeypatch.setattr(channels, "_RATE", 1.0)
    taken = 0
    async with connected(flood) as flooded:
        with anyio.move_on_after(0.5):
            while True:
                taken += len(await flooded.stdout.receive())
    # Short messages count as longer than they are.
    assert taken == (channels._PORTION // channels._LEAST + 1) * 1000


async def test_unread_output_is_not_buffered_without_limit() -> None:
    sent = 0

    async def flood(socket: web.WebSocketResponse) -> None:
        nonlocal sent
        for _ in range(640):
            await socket.send_bytes(b"\x01" + bytes(1 << 16))
            sent += 1

    async with connected(flood) as channels:
        with anyio.move_on_after(1):
            await channels.ended.wait()
        assert 0 < sent < 640
        total = 0
        async for part in channels.stdout:
            total += len(part)
        assert total == 640 << 16
