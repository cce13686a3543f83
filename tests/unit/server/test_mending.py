"""What the application gets of a request's body, in whatever parts it arrives."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from llm_sandbox_mcp.server.mending import Mending

pytestmark = pytest.mark.anyio

LARGEST = 100
HALF = rb'{"x": "\ud83d"}'
MENDED = rb'{"x": "\ufffd"}'
GONE: Message = {"type": "http.disconnect"}


def body(*parts: bytes) -> list[Message]:
    """The messages of a body."""
    return [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]


async def received(arriving: list[Message], path: str = "/mcp", method: str = "POST") -> list[Message]:
    """What an application gets that reads everything."""
    got: list[Message] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        while GONE not in got:
            got.append(await receive())

    async def receive() -> Message:
        return arriving.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    await Mending(application, LARGEST)({"type": "http", "method": method, "path": path}, receive, send)
    assert not arriving
    return got


def whole(messages: list[Message]) -> bytes:
    """The body in complete messages, after which the client is gone."""
    *parts, end = messages
    assert end == GONE
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    return b"".join(part["body"] for part in parts)


@pytest.mark.parametrize("path", ["/mcp", "/messages/"])
@pytest.mark.parametrize("cut", range(len(HALF) + 1))
async def test_a_message_is_mended_wherever_it_was_cut(path: str, cut: int) -> None:
    got = await received([*body(HALF[:cut], HALF[cut:]), GONE], path)
    assert whole(got) == MENDED
    assert not got[-2]["body"], "the package keeps the last part"


async def test_a_body_that_is_too_large_is_passed_on_as_it_arrives() -> None:
    parts = body(HALF * 4, HALF * 4, HALF)
    got = await received([*parts, GONE])
    assert whole(got) == HALF * 9
    assert len(got[0]["body"]) == len(HALF) * 8, "the start, of which the application sees that it is too large"


async def test_a_client_that_goes_within_its_body_is_gone() -> None:
    assert await received([*body(HALF, b"")[:1], GONE]) == [GONE]


@pytest.mark.parametrize(("path", "method"), [("/files/x", "POST"), ("/execute_code/", "POST"), ("/mcp", "DELETE")])
async def test_other_requests_are_passed_on(path: str, method: str) -> None:
    arriving = [*body(HALF, HALF), GONE]
    assert await received([*arriving], path, method) == arriving


async def test_nothing_is_read_that_the_application_does_not_read() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    async def never(*_: object) -> Message:
        raise AssertionError

    await Mending(application, LARGEST)({"type": "http", "method": "POST", "path": "/mcp"}, never, never)  # type: ignore[arg-type]
