"""A small HTTP/1.1 server for a peer that is not trusted: no request bodies, and a bound on all that it can hold."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio
import h11
from anyio.abc import SocketListener, SocketStream

CONNECTIONS = 64
HEAD = 16 << 10
"""Bytes of a request line and its headers."""
WAIT = 30.0
"""Seconds for a whole request to arrive, and for each piece of an answer to be taken."""
_PIECE = 64 << 10

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """A request without a body; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]


class Refused(Exception):
    """Ends a request with a status and one line of text; an answer that has begun is broken off instead."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class Reply:
    """The answer to one request: `start` once, then `write` any number of times."""

    def __init__(self, stream: SocketStream, connection: h11.Connection) -> None:
        self._stream = stream
        self._connection = connection
        self.started = False

    async def start(self, status: int, headers: Headers) -> None:
        """Sends the head."""
        self.started = True
        await self._send(self._connection.send(h11.Response(status_code=status, headers=headers)))

    async def write(self, data: bytes) -> None:
        """Sends a part of the body and returns when the peer's window has room again."""
        for start in range(0, len(data), _PIECE):
            await self._send(self._connection.send(h11.Data(data=data[start : start + _PIECE])))

    async def finish(self) -> None:
        """Ends the body; a body shorter than its announced length raises `h11.LocalProtocolError`."""
        await self._send(self._connection.send(h11.EndOfMessage()))

    async def line(self, status: int, text: str, *, close: bool = False) -> None:
        """Sends a whole answer of one line of text."""
        body = f"{text}\n".encode()
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
        if status == 405:
            headers.append(("allow", "GET, HEAD"))
        if close:
            headers.append(("connection", "close"))
        await self.start(status, headers)
        await self.write(body)
        await self.finish()

    async def _send(self, data: bytes | None) -> None:
        if data:
            with anyio.fail_after(WAIT):
                await self._stream.send(data)


Handler = Callable[[Request, Reply], Awaitable[None]]


async def serve(listener: socket.socket, handle: Handler) -> None:
    """Answers what connects to the listening socket until it is cancelled; the socket is closed with it."""
    listener.setblocking(False)
    slots = anyio.Semaphore(CONNECTIONS)
    async with await SocketListener.from_socket(listener) as accepting, anyio.create_task_group() as group:
        while True:
            await slots.acquire()
            try:
                stream = await accepting.accept()
            except OSError:
                # The peer hung up before it was accepted, or descriptors ran out: neither ends the service.
                slots.release()
                await anyio.sleep(0.05)
                continue
            group.start_soon(_connection, stream, handle, slots)


async def _connection(stream: SocketStream, handle: Handler, slots: anyio.Semaphore) -> None:
    try:
        async with stream:
            with suppress(TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError, h11.ProtocolError):
                await _converse(stream, handle)
    finally:
        slots.release()


async def _converse(stream: SocketStream, handle: Handler) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)
    while True:
        reply = Reply(stream, connection)
        try:
            with anyio.fail_after(WAIT):
                head = await _head(stream, connection)
        except h11.RemoteProtocolError as error:
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await reply.line(error.error_status_hint, "this is not a request that can be read here", close=True)
            return
        if head is None:
            return
        if _has_body(head):
            await reply.line(400, "requests with a body are not served here", close=True)
            return
        try:
            await handle(head, reply)
            await reply.finish()
        except Refused as refused:
            if reply.started:
                return
            await reply.line(refused.status, str(refused))
        if connection.their_state is h11.SEND_BODY:
            connection.next_event()
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return
        connection.start_next_cycle()


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0").strip("0") != ""


async def _head(stream: SocketStream, connection: h11.Connection) -> Request | None:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            try:
                data = await stream.receive(HEAD)
            except anyio.EndOfStream:
                data = b""
            connection.receive_data(data)
        elif isinstance(event, h11.Request):
            decode = partial(str, encoding="latin-1")
            headers = {decode(name): decode(value) for name, value in event.headers}
            return Request(decode(event.method), decode(event.target), headers)
        else:
            return None
