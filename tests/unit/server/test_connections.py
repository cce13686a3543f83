"""Requests whose clients are gone, and which go on: they count for their own clients only."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState

from llm_sandbox_mcp.server.connections import TOO_LATE, SingleAnswer, bounded

pytestmark = pytest.mark.anyio

MOST = 4


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Application:
    """Answers at once, but `/long` only when `ending` is set, whether its client is there or not."""

    def __init__(self) -> None:
        self.ending = anyio.Event()
        self.working = 0
        self.changed = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/long":
            self._count(1)
            while (await receive())["type"] != "http.disconnect":
                pass
            await self.ending.wait()
            self._count(-1)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def works_on(self, number: int) -> None:
        """Waits until so many clients have asked for `/long`, and have no answer."""
        while self.working != number:
            await self.changed.wait()

    def _count(self, more: int) -> None:
        self.working += more
        self.changed.set()
        self.changed = anyio.Event()


@asynccontextmanager
async def listening(application: Application) -> AsyncIterator[int]:
    """The port of a server for this application."""
    config = uvicorn.Config(application, log_config=None, ws="none", **bounded(MOST))
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
        "127.0.0.1",
    )
    async with server:
        yield server.sockets[0].getsockname()[1]
        application.ending.set()
        await application.works_on(0)


async def ask(port: int, own: str, path: str = "/") -> bytes:
    """The status that a client with this address gets; none for `/long`, which it leaves."""
    async with await anyio.connect_tcp("127.0.0.1", port, local_host=own) as stream:
        await stream.send(f"GET {path} HTTP/1.1\r\nhost: here\r\n\r\n".encode())
        return b"" if path == "/long" else (await stream.receive())[9:12]


async def test_requests_that_clients_left_behind_take_nothing_from_others() -> None:
    application = Application()
    with anyio.fail_after(60):
        async with listening(application) as port:
            for left in range(1, MOST + 1):
                assert await ask(port, "127.0.0.1") == b"200"
                await ask(port, "127.0.0.1", "/long")
                await application.works_on(left)
            assert await ask(port, "127.0.0.1") == b"503"
            for owner in range(2, 12):
                own = f"127.0.0.{owner}"
                assert await ask(port, own) == b"200"
                await ask(port, own, "/long")
                await application.works_on(MOST + owner - 1)
        async with listening(Application()) as port:
            assert await ask(port, "127.0.0.1") == b"200"


START: Message = {"type": "http.response.start", "status": 200, "headers": []}
PART: Message = {"type": "http.response.body", "body": b"x", "more_body": True}
REST: Message = {"type": "http.response.body", "body": b"y"}


class Answering:
    """Sends some messages, and then fails."""

    def __init__(self, messages: Sequence[Message], error: type[Exception]) -> None:
        self._messages = messages
        self._error = error
        self.sent: list[Message] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for message in self._messages:
            await send(message)
        raise self._error

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def answer(self) -> None:
        async def receive() -> Message:
            await anyio.sleep_forever()
            raise AssertionError

        await SingleAnswer(self)({}, receive, self.send)


@pytest.mark.parametrize("error", TOO_LATE)
@pytest.mark.parametrize("sent", [(START, REST), (START, PART, REST), (START, {**REST, "more_body": False})])
async def test_an_error_after_the_answer_is_dropped_with_all_that_would_answer_again(
    sent: Sequence[Message], error: type[Exception]
) -> None:
    answering = Answering([*sent, START, REST], error)
    await answering.answer()
    assert answering.sent == [*sent]


@pytest.mark.parametrize("sent", [(), (START,), (START, PART)])
async def test_an_error_before_the_end_of_the_answer_is_raised(sent: Sequence[Message]) -> None:
    answering = Answering(sent, TOO_LATE[0])
    with pytest.raises(TOO_LATE[0]):
        await answering.answer()
    assert answering.sent == [*sent]


async def test_another_error_after_the_answer_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await Answering([START, REST], ZeroDivisionError).answer()
