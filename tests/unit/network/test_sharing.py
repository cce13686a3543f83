"""Many sandboxes share the connections of one proxy: none of them makes another one wait."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream, TaskGroup

from llm_sandbox_mcp.backends.listening import Listener, listen_on
from llm_sandbox_mcp.network import http1, sharing
from llm_sandbox_mcp.network.http1 import Reply, Request, Serving, serve
from llm_sandbox_mcp.network.sharing import Shared

pytestmark = pytest.mark.anyio

MOST = 4
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CONNECT = b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"


class Peer:
    """A client in one sandbox."""

    def __init__(self, listener: Listener, tasks: TaskGroup, stack: AsyncExitStack, shared: Shared) -> None:
        self._listener = listener
        self._stack = stack
        tasks.start_soon(serve, listener, Serving(self._answer, 2 * MOST, shared))

    async def _answer(self, request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.start(200, [("content-length", "5")])
            await reply.write(b"here\n")
        elif request.target == "x:1":
            stream, early = await reply.switch()
            await stream.send(early)
            async for data in stream:
                reply.moved()
                await stream.send(data)
        else:
            raise RuntimeError("nobody foresaw this")

    async def connect(self) -> anyio.abc.SocketStream:
        return await self._stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", self._listener.port))

    async def ask(self, raw: bytes = GET) -> anyio.abc.SocketStream:
        """A connection on which a request was answered."""
        stream = await self.connect()
        assert b" 200 " in await said(stream, raw)
        return stream


async def said(stream: ByteStream, raw: bytes) -> bytes:
    """What comes back for raw bytes; less, or nothing, if the connection has ended."""
    end = b"here\n" if raw == GET else b"\r\n\r\n" if raw.startswith(CONNECT[:7]) else raw
    got = b""
    try:
        await stream.send(raw)
        while not got.endswith(end):
            got += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass
    return got


@asynccontextmanager
async def peers(number: int) -> AsyncIterator[list[Peer]]:
    """Clients, each in its own sandbox, that can have `MOST` connections together."""
    shared = Shared(MOST)
    with anyio.fail_after(30):
        async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            listeners = [
                await stack.enter_async_context(listen_on(socket.create_server(("127.0.0.1", 0))))
                for _ in range(number)
            ]
            yield [Peer(listener, tasks, stack, shared) for listener in listeners]
            tasks.cancel_scope.cancel()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a request is idle at once."""
    monkeypatch.setattr(sharing, "SETTLED", 0.0)


@pytest.mark.usefixtures("settled")
async def test_connections_without_a_request_give_way_the_oldest_first() -> None:
    async with peers(3) as (greedy, other, third):
        kept = [await greedy.ask() for _ in range(3)]
        own = await other.ask()
        for _ in range(2):
            await third.ask()
        assert await said(kept[0], GET) == b""
        assert await said(kept[1], GET) == b""
        assert b" 200 " in await said(kept[2], GET)
        assert b" 200 " in await said(own, GET)


async def test_tunnels_give_way_to_a_sandbox_that_has_less_the_one_without_data_first() -> None:
    async with peers(2) as (greedy, other):
        tunnels = [await greedy.ask(CONNECT) for _ in range(MOST)]
        assert await said(tunnels[0], b"data") == b"data"
        first = await other.ask(CONNECT)
        assert await said(tunnels[1], b"data") == b""
        assert await said(tunnels[0], b"data") == b"data"
        second = await other.ask(CONNECT)
        assert await said(first, b"data") == b"data"
        # Now both have the same number, and neither takes anything from the other.
        waiting = await other.connect()
        await waiting.send(GET)
        with anyio.move_on_after(0.05) as silence:
            await waiting.receive()
        assert silence.cancelled_caught
        assert await said(tunnels[0], b"data") == b"data"
        await second.aclose()
        assert b" 200 " in await waiting.receive()


@pytest.mark.usefixtures("settled")
async def test_idle_connections_of_a_small_sandbox_are_closed_before_requests_of_a_large_one() -> None:
    async with peers(3) as (busy, idle, third):
        tunnels = [await busy.ask(CONNECT) for _ in range(MOST - 1)]
        kept = await idle.ask()
        await third.ask(CONNECT)
        assert await said(kept, GET) == b""
        for tunnel in tunnels:
            assert await said(tunnel, b"data") == b"data"


@pytest.mark.usefixtures("settled")
async def test_an_idle_connection_gives_way_to_another_one_of_its_own_sandbox() -> None:
    async with peers(1) as (only,):
        kept = [await only.ask() for _ in range(MOST)]
        await only.ask(CONNECT)
        assert await said(kept[0], GET) == b""
        assert b" 200 " in await said(kept[1], GET)


async def test_connections_that_end_leave_their_places() -> None:
    async with peers(2) as (one, other):
        for _ in range(3 * MOST):
            await (await one.ask(CONNECT)).aclose()
        kept = [await other.ask(CONNECT) for _ in range(MOST)]
        for stream in kept:
            assert await said(stream, b"data") == b"data"


async def test_an_unforeseen_error_ends_one_request_and_is_logged_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, http1.__name__)
    async with peers(2) as (one, other):
        stays = await one.ask()
        failed = await one.connect()
        answered = await said(failed, CONNECT.replace(b"x:1", b"x:2"))
        assert answered.startswith(b"HTTP/1.1 500 the server had an unexpected error, which its log explains; ")
        assert b" 200 " in await said(stays, GET)
        await other.ask()
    [record] = caplog.records
    assert record.exc_info
    assert str(record.exc_info[1]) == "nobody foresaw this"


async def test_unforeseen_errors_in_a_group_or_after_the_answer_began_end_only_their_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(request: Request, reply: Reply) -> None:
        if request.target == "/begun":
            await reply.start(200, [])
            raise RuntimeError("nobody foresaw this")
        if request.target == "/ended":
            raise ExceptionGroup("", [anyio.BrokenResourceError()])
        if request.target == "/group":
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(failing)
        await reply.start(200, [])

    async def failing() -> None:
        raise KeyError

    with anyio.fail_after(30):
        async with listen_on(socket.create_server(("127.0.0.1", 0))) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(serve, listener, Serving(answer, 1))
            for path, status in (("begun", b"200"), ("ended", b""), ("group", b"500"), ("", b"200")):
                async with await anyio.connect_tcp("127.0.0.1", listener.port) as stream:
                    await stream.send(
                        GET.replace(b"/ ", f"/{path} ".encode(), 1).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
                    )
                    assert status in b"".join([data async for data in stream])[:12]
            tasks.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == ["a connection failed", "a request failed"]
