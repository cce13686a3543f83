"""Who gets memory for the bodies of requests, who waits, and who gives way; on a clock that jumps."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache

import anyio
import pytest
from anyio import wait_all_tasks_blocked as settled
from anyio.abc import TaskGroup
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from llm_sandbox_mcp.server.bodies import ROOM, SMALL, Bodies, claim_of
from llm_sandbox_mcp.server.memory import USUAL, Claim, Parsed
from tests.memory.clock import BACKEND

pytestmark = pytest.mark.anyio

LARGEST = 4 << 20
MOST = ROOM // 4 // LARGEST
"""Bodies of this size that one client can have at once."""


@pytest.fixture
def anyio_backend() -> tuple[str, Mapping[str, object]]:
    return BACKEND


class Client:
    """A request, sent part by part. Without `length`, its length is not announced; if `chunked`, it can be any."""

    def __init__(self, address: str = "10.0.0.1", length: int | None = LARGEST, *, chunked: bool = False) -> None:
        self.length = length
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        headers += [(b"transfer-encoding", b"chunked")] if chunked else []
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": headers,
            "client": (address, 1),
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self.answered = anyio.Event()
        self.read = 0
        """Bytes that the server has read."""
        self._parts, self._given = anyio.create_memory_object_stream[Message](1000)

    def send(self, size: int, *, more: bool = False, text: bytes = b" ") -> None:
        """Sends so many bytes, the last ones unless there are more."""
        self._parts.send_nowait({"type": "http.request", "body": _filled(size, text), "more_body": more})

    async def ask(self, server: Bodies) -> None:
        """Does the request, until it is answered."""

        async def receive() -> Message:
            message = await self._given.receive()
            self.read += len(message["body"])
            return message

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                self.text += message["body"].decode()

        with self._parts, self._given:
            await server(self.scope, receive, send)
        self.answered.set()


@lru_cache(maxsize=8)
def _filled(size: int, text: bytes) -> bytes:
    """A body, which many clients send in turn."""
    return (text * (size // len(text) + 1))[:size]


class Server:
    """Reads bodies, and answers when `answering` is set."""

    def __init__(self) -> None:
        self.answering = anyio.Event()
        self.parsing = 0
        """Requests whose whole bodies it has."""
        self.bodies = Bodies(self._application, LARGEST, self._refuse)

    async def _application(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        self.parsing += 1
        await self.answering.wait()
        self.parsing -= 1
        await PlainTextResponse(str(len(body)))(scope, receive, send)

    async def _refuse(self, _: Request, error: HTTPException) -> Response:
        return PlainTextResponse(error.detail, error.status_code, error.headers)


def begin(tasks: TaskGroup, server: Server, client: Client, sent: int, *, more: bool = True) -> Client:
    """Begins a request, and sends a part of its body."""
    client.send(sent, more=more)
    tasks.start_soon(client.ask, server.bodies)
    return client


def whole(tasks: TaskGroup, server: Server, address: str = "10.0.0.1") -> Client:
    """Begins a request with a body of the largest size, and sends all of it."""
    return begin(tasks, server, Client(address), LARGEST, more=False)


async def test_a_large_body_waits_for_room_and_a_small_one_does_not() -> None:
    server = Server()
    server.answering.set()
    async with anyio.create_task_group() as tasks:
        arriving = [begin(tasks, server, Client(), SMALL) for _ in range(MOST)]
        waiting = whole(tasks, server)
        small = [begin(tasks, server, Client(length=length), SMALL, more=False) for length in (SMALL, None)]
        await settled()
        assert waiting.read == 0
        assert [client.text for client in small] == [str(SMALL)] * 2
        arriving[0].send(LARGEST - SMALL)
        await settled()
        assert [client.text for client in (arriving[0], waiting)] == [str(LARGEST)] * 2
        tasks.cancel_scope.cancel()


async def test_bodies_that_stop_arriving_give_way_when_others_wait() -> None:
    server = Server()
    server.answering.set()
    async with anyio.create_task_group() as tasks:
        stopped = [begin(tasks, server, Client(), LARGEST - 1) for _ in range(MOST + 4)]
        honest = whole(tasks, server)
        await honest.answered.wait()
        assert honest.text == str(LARGEST)
        assert {client.status for client in stopped} == {503, 0}
        refused = next(client for client in stopped if client.status)
        assert refused.headers["retry-after"] == "5"
        assert "; " in refused.text
        tasks.cancel_scope.cancel()


async def test_a_body_that_arrives_bit_by_bit_gives_way_too() -> None:
    server = Server()
    server.answering.set()

    async def drip(client: Client) -> None:
        while not client.status:
            client.send(1, more=True)
            await anyio.sleep(0.5)

    async with anyio.create_task_group() as tasks:
        slow = [begin(tasks, server, Client(), 1) for _ in range(MOST)]
        async with anyio.create_task_group() as dripping:
            for client in slow:
                dripping.start_soon(drip, client)
            await anyio.sleep(60)
            assert not any(client.status for client in slow)  # nobody waits for their room
            honest = whole(tasks, server)
            await honest.answered.wait()
            assert honest.text == str(LARGEST)
            assert [client.status for client in slow].count(503) == 1
            dripping.cancel_scope.cancel()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("own", ["10.0.0.1", "2001:db8::{:x}"], ids=["IPv4", "IPv6"])
async def test_one_client_leaves_room_to_another_and_complete_bodies_stay(own: str) -> None:
    server = Server()
    async with anyio.create_task_group() as tasks:
        complete = [whole(tasks, server, own.format(number)) for number in range(MOST)]
        more = whole(tasks, server, own.format(MOST))
        other = whole(tasks, server, "10.0.0.2")
        await settled()
        assert (more.read, other.read) == (0, LARGEST)
        await more.answered.wait()
        assert (more.status, more.headers["retry-after"]) == (503, "5")
        server.answering.set()
        for client in (*complete, other, whole(tasks, server)):
            await client.answered.wait()
            assert client.text == str(LARGEST)


async def test_requests_that_keep_all_that_their_client_can_have_leave_room_for_bodies_of_usual_size() -> None:
    """Also of the same client: behind a proxy, and on loopback, all have one address."""
    server = Server()
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            held = Client()
            held.send(LARGEST, text=b"{},")
            tasks.start_soon(held.ask, server.bodies)
        await settled()
        assert server.parsing == 2
        other, usual = whole(tasks, server), begin(tasks, server, Client(length=USUAL), USUAL, more=False)
        await settled()
        assert (other.read, usual.read, server.parsing) == (0, USUAL, 3)
        server.answering.set()


async def test_of_those_who_wait_the_client_with_least_is_first() -> None:
    server = Server()
    async with anyio.create_task_group() as tasks:
        for client in range(60):  # more and more clients share until the rest is too small for one more
            for _ in range(2):
                whole(tasks, server, f"10.0.1.{client}")
        many, none = whole(tasks, server, "10.0.1.0"), whole(tasks, server, "10.0.2.0")
        await settled()
        assert (many.read, none.read) == (0, 0)
        server.answering.set()
        await settled()
        assert many.text == none.text == str(LARGEST)


@pytest.mark.parametrize("announced", [None, 1, SMALL + 1])
async def test_a_body_of_unknown_length_has_room_for_the_largest_until_it_is_complete(announced: int | None) -> None:
    """Also if a length is announced that does not count, as beside chunks."""
    server = Server()
    async with anyio.create_task_group() as tasks:
        chunked = [begin(tasks, server, Client(length=announced, chunked=True), SMALL + 1) for _ in range(MOST)]
        await settled()
        waiting = whole(tasks, server)
        await settled()
        assert waiting.read == 0
        for client in chunked:
            client.send(1)
        await settled()
        assert waiting.read == LARGEST
        server.answering.set()


@pytest.mark.parametrize(("length", "most"), [(LARGEST, 1), (SMALL, 80)])
async def test_a_body_needs_the_room_that_it_takes_once_it_is_parsed(length: int, most: int) -> None:
    server = Server()
    async with anyio.create_task_group() as tasks:
        clients = [Client(length=length) for _ in range(MOST if length == LARGEST else 100)]
        for client in clients:
            client.send(length, text=b"{},")
            tasks.start_soon(client.ask, server.bodies)
        await settled()
        assert 0 < server.parsing <= most
        server.answering.set()
        for client in clients:
            await client.answered.wait()
        assert {client.text for client in clients} == {str(length)}


@pytest.mark.parametrize(
    ("text", "most"), [("[{,:", 8), ("\N{GRINNING FACE}", 3), (r"\ud83d\ude00", 3)], ids=["ascii", "emoji", "escaped"]
)
async def test_text_needs_the_room_that_its_copies_take_whatever_it_contains(text: str, most: int) -> None:
    server = Server()
    async with anyio.create_task_group() as tasks:
        for _ in range(MOST):
            client = Client()
            client.send(13, text=f'"{text}'.encode().ljust(13), more=True)
            client.send(LARGEST - 14, text=b'[{,:\\"', more=True)
            client.send(1, text=b'"')
            tasks.start_soon(client.ask, server.bodies)
        await settled()
        assert server.parsing == most
        server.answering.set()


VALUES = st.recursive(
    st.text('[{,:\\"é', max_size=5), lambda inside: st.lists(inside) | st.dictionaries(st.text('{"\\'), inside)
)


def parsed(*parts: bytes) -> int:
    """Bytes that a body takes once it is parsed, beyond those that arrive."""
    counted = Parsed()
    for part in parts:
        counted.add(part)
    return counted.size - sum(map(len, parts))


@given(VALUES, st.integers(1, 9))
def test_what_strings_contain_counts_only_by_its_length_wherever_a_body_is_cut(value: object, size: int) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", text, flags=re.DOTALL)
    assert parsed(*(text[start : start + size] for start in range(0, len(text), size))) == parsed(outside) + 2 * (
        len(text) - len(outside)
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "utf-32"])
def test_no_encoding_hides_what_a_body_contains(encoding: str) -> None:
    text = f'["\\""{",{}" * 1000}]'
    assert json.loads(text.encode(encoding)) == ['"', *[{}] * 1000]
    assert parsed(text.encode(encoding)) >= parsed(b"[" + b",{}" * 1000)


async def test_a_client_that_is_gone_leaves_its_room() -> None:
    server = Server()
    server.answering.set()
    async with anyio.create_task_group() as tasks:
        for _ in range(3 * MOST):
            async with anyio.create_task_group() as gone:
                begin(gone, server, Client(), 1)
                await settled()
                gone.cancel_scope.cancel()
        last = whole(tasks, server)
        await settled()
        assert last.text == str(LARGEST)


@pytest.mark.parametrize(("size", "most"), [(LARGEST, 10), (SMALL, 2000), (100, 7200)])
async def test_messages_that_are_handled_after_their_requests_keep_their_room(size: int, most: int) -> None:
    """As in sessions of the older protocol, whose clients can disconnect before the answer."""
    handling = 0
    ending = anyio.Event()

    async def handle(claim: Claim) -> None:
        nonlocal handling
        with claim.kept():
            handling += 1
            await ending.wait()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await request.body()
        tasks.start_soon(handle, claim_of(request))
        await PlainTextResponse("accepted", 202)(scope, receive, send)

    async def refuse(_: Request, error: HTTPException) -> Response:
        return PlainTextResponse(error.detail, error.status_code, error.headers)

    async def ask(address: str = "10.0.0.1") -> int:
        client = Client(address, size)
        client.send(1, text=b'"', more=True)
        client.send(size - 2, text=b"a", more=True)
        client.send(1, text=b'"')
        await client.ask(server)
        return client.status

    server = Bodies(application, LARGEST, refuse)
    async with anyio.create_task_group() as tasks:
        while await ask() == 202:
            assert handling <= most
        assert handling > most // 2
        assert await ask("10.0.0.2") == 202
        ending.set()
        await settled()
        assert await ask() == 202
