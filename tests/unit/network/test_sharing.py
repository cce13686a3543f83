"""Many sandboxes share the connections of one proxy: none of them makes another one wait.

At the end: which connection gives way where all places are taken, on a clock that only the tests move.
"""

import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream, TaskGroup

from llm_sandbox_mcp.backends.listening import Listener, listen_on
from llm_sandbox_mcp.network import http1, sharing
from llm_sandbox_mcp.network.http1 import Reply, Request, Serving, serve
from llm_sandbox_mcp.network.sharing import SETTLED, Place, Shared

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


class Places:
    """Connections that share a maximum; each owner can have `each` of them."""

    def __init__(self, most: int, each: int = 9) -> None:
        self.now = 1000.0
        self.ended: list[str] = []
        self._shared = Shared(most)
        self._each = each

    def take(self, name: str, *, busy: bool = False) -> Place | None:
        """A place for the connection with this name, whose first letter is its owner."""
        place = self._shared.take_now(name[0], self._each, lambda: self.ended.append(name))
        if place is not None and busy:
            place.work()
        return place

    def have(self, *names: str, busy: bool = False) -> list[Place]:
        """One connection after the other, each of which gets a place at once."""
        places = []
        for name in names:
            place = self.take(name, busy=busy)
            assert place is not None
            places.append(place)
            self.now += 1
        return places

    def leave(self, place: Place) -> None:
        self._shared.leave(place)


Make = Callable[..., Places]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(most: int, each: int = 9) -> Places:
        places = Places(most, each)
        monkeypatch.setattr(anyio, "current_time", lambda: places.now)
        return places

    return make


async def test_a_connection_without_a_request_is_idle_once_its_first_one_would_have_come(
    make: Make,
) -> None:
    places = make(most=1)
    start = places.now
    places.have("a")
    places.now = start + 0.9 * SETTLED
    assert places.take("b") is None
    places.now = start + SETTLED
    assert places.take("b")
    assert places.ended == ["a"]


async def test_a_connection_with_a_request_is_not_idle_and_soon_after_its_end_neither(
    make: Make,
) -> None:
    places = make(most=1)
    [place] = places.have("a", busy=True)
    places.now += 1000 * SETTLED
    assert places.take("b") is None
    place.wait()
    places.now += 0.9 * SETTLED
    assert places.take("b") is None
    places.now += SETTLED
    assert places.take("b")


async def test_of_idle_connections_the_owner_with_the_most_loses_the_one_that_waits_longest(
    make: Make,
) -> None:
    places = make(most=5)
    places.have("a1", "b1")
    [first, _, _] = places.have("b2", "b3", "b4", busy=True)
    places.now += SETTLED
    first.wait()
    places.now += SETTLED
    places.have("c1", "c2", "c3", busy=True)
    assert places.ended == ["b1", "b2", "a1"]


async def test_what_may_give_way_late_does_so_after_the_others_of_its_owner(make: Make) -> None:
    places = make(most=3)
    [kept, _, _] = places.have("a1", "a2", "b1")
    kept.wait(late=True)
    places.now += SETTLED
    places.have("c1", "c2")
    assert places.ended == ["a2", "a1"]
    [plain, late] = make(most=2).have("a1", "a2")
    assert not plain.late
    late.wait(late=True)
    late.wait()
    assert not late.late


@pytest.mark.parametrize(("others", "own", "gives_way"), [(1, 0, False), (2, 0, True), (2, 1, False), (3, 1, True)])
async def test_a_request_in_progress_gives_way_to_an_owner_with_at_least_two_connections_less(
    others: int, own: int, gives_way: bool, make: Make
) -> None:
    places = make(most=others + own)
    held = places.have(*(f"a{number}" for number in range(others)), busy=True)
    places.have(*(f"b{number}" for number in range(own)), busy=True)
    held[0].moved()
    assert (places.take("b") is not None) is gives_way
    assert places.ended == [f"a{min(1, others - 1)}"] * gives_way


async def test_an_owner_with_all_that_it_can_have_takes_no_place_of_another(make: Make) -> None:
    places = make(most=4, each=2)
    places.have("a1", "a2")
    [_, second] = places.have("b1", "b2", busy=True)
    places.now += SETTLED
    assert places.take("b") is None
    second.wait()
    places.now += SETTLED
    assert places.take("b")
    assert places.ended == ["b2"]


async def test_places_are_free_up_to_the_maximum_and_those_that_were_left_are_free_again(
    make: Make,
) -> None:
    places = make(most=2)
    [first, _] = places.have("a1", "b1", busy=True)
    assert places.take("c") is None
    places.leave(first)
    places.leave(first)
    assert places.take("c", busy=True)
    assert places.take("c") is None
    assert not places.ended
