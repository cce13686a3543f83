"""What one connection carries, and that no error of it, or while one is accepted, ends the listener."""

import errno
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream

from llm_sandbox_mcp.backends.listening import Listener, listen_on
from llm_sandbox_mcp.network import http1
from llm_sandbox_mcp.network.http1 import Reply, Request, Serving, serve

pytestmark = pytest.mark.anyio

ASK = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Stumbling(Listener):
    """Raises these errors first, one for each connection that it would accept."""

    def __init__(self, listener: Listener, *errors: Exception) -> None:
        self.port = listener.port
        self.errors = [*errors]
        self._listener = listener

    async def accept(self) -> ByteStream:
        if self.errors:
            raise self.errors.pop(0)
        return await self._listener.accept()


@asynccontextmanager
async def serving(*errors: Exception, handled: bool = False) -> AsyncIterator[Stumbling]:
    """A server whose handlers fail at one path, and at what is no request unless that is `handled`; `errors` come
    before connections."""

    async def answer(request: Request, reply: Reply) -> None:
        if request.target == "/broken":
            raise RuntimeError("unforeseen")
        if request.method == "CONNECT":
            stream, early = await reply.switch()
            await stream.send(early.upper())
            return
        await reply.start(200, [("content-length", str(len(request.target)))])
        await reply.write(request.target.encode())

    async def unreadable(_seen: bytes) -> None:
        if not handled:
            raise RuntimeError("unforeseen")

    with anyio.fail_after(30):
        async with (
            listen_on(socket.create_server(("127.0.0.1", 0))) as listener,
            anyio.create_task_group() as tasks,
        ):
            stumbling = Stumbling(listener, *errors)
            tasks.start_soon(serve, stumbling, Serving(answer, 8, bodies=True, on_unreadable=unreadable))
            yield stumbling
            tasks.cancel_scope.cancel()


async def asked(port: int, raw: bytes = ASK, then: bytes = b"") -> bytes:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(raw)
        await stream.send(then)
        return b"".join([data async for data in stream])


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        OSError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED)),
        anyio.BrokenResourceError(),
        MemoryError(),
        RuntimeError("unforeseen"),
    ],
    ids=["no descriptor", "gone", "broken", "no memory", "unforeseen"],
)
async def test_an_error_while_a_connection_is_accepted_leaves_the_next_one_its_answer(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(error, error) as listener:
        assert (await asked(listener.port)).startswith(b"HTTP/1.1 200 ")
        assert not listener.errors
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == (0 if isinstance(error, OSError) else 2)


@pytest.mark.parametrize("raw", [ASK.replace(b"/ ", b"/broken ", 1), b"\0\r\n\r\n"], ids=["request", "no request"])
async def test_an_error_of_a_handler_ends_its_own_connection_only(raw: bytes) -> None:
    async with serving() as listener:
        assert not (await asked(listener.port, raw)).startswith(b"HTTP/1.1 200 ")
        assert (await asked(listener.port)).startswith(b"HTTP/1.1 200 ")


async def test_one_connection_carries_requests_until_its_client_closes_it() -> None:
    first, second = (ASK.replace(b"/ ", path, 1) for path in (b"/first ", b"/second "))
    async with serving() as listener:
        said = await asked(listener.port, first.replace(b"Connection: close\r\n", b"") + second)
    assert [answer.partition(b"\r\n\r\n")[2] for answer in said.split(b"HTTP/1.1 200 ")] == [b"", b"/first", b"/second"]


@pytest.mark.parametrize("size", [5, http1.HEAD * 3], ids=["small", "large"])
async def test_a_body_that_nobody_read_is_not_taken_for_the_next_request(size: int) -> None:
    head = b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
    async with serving() as listener:
        said = await asked(listener.port, head + b"x" * size + ASK)
    assert said.count(b"HTTP/1.1 ") == said.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize(("size", "status"), [(1 << 14, b"200"), ((1 << 14) + 1, b"431")])
async def test_the_head_of_a_request_is_limited(size: int, status: bytes) -> None:
    end = b"\r\nConnection: close\r\n\r\n"
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: "
    async with serving(handled=True) as listener:
        said = await asked(listener.port, head + b"x" * (size - len(head)), end if status == b"200" else b"")
    assert said.startswith(b"HTTP/1.1 %b " % status)


async def test_what_follows_a_tunnel_is_not_answered_as_a_request() -> None:
    async with serving() as listener:
        said = await asked(listener.port, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n" + ASK)
    assert said.partition(b"\r\n\r\n")[2] == ASK.upper()
