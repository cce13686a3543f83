"""A small HTTP/1.1 server for a peer that is not trusted, with a limit for everything that it can occupy."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import anyio
import h11
from anyio.abc import ByteStream

from ..backends.listening import Listener
from ..base.text import one_line
from ..host.records import WithoutFloods
from .sharing import Place, Shared

HEAD = 16 << 10
"""Maximum bytes of a request line and its headers."""
WAIT = 30.0
"""Seconds for a whole request head, and for each piece of a body or of a response."""
_PIECE = 64 << 10
_DISCARDED = 1 << 20
"""Bytes of an unread body that are discarded before the connection is closed."""
_SEEN = 200
_ENDINGS = (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError, h11.ProtocolError)
"""How a connection can end at any time."""

_NOT_ALLOWED = "the host answered with a status or a header that HTTP does not allow; use another host"
_UNFORESEEN = "the server had an unexpected error, which its log explains; try again"

_log = logging.getLogger(__name__)
_log.addFilter(WithoutFloods())

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    """If a name occurs twice, the last value."""
    lines: Headers
    """All headers, in order."""
    body: AsyncIterator[bytes]
    """The body; empty if the request has none."""


class Refused(Exception):
    """Ends a request with a status and one line of text; if the response has begun, it is cut off instead."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


class Reply:
    """The response to one request: `start` once, then `write` any number of times."""

    def __init__(self, stream: ByteStream, connection: h11.Connection, moved: Callable[[], None]) -> None:
        self._stream = stream
        self._connection = connection
        self.moved = moved
        """To be called when data of the request or of the response moves, if that happens elsewhere."""
        self.started = False

    async def start(self, status: int, headers: Headers, reason: str = "") -> None:
        """Sends the head; raises `Refused` if the status or a header is not allowed in a response."""
        phrase = one_line(reason).encode("ascii", "replace")
        try:
            lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            head = h11.Response(status_code=status, headers=lines, reason=phrase)
        except (UnicodeEncodeError, h11.LocalProtocolError):
            raise Refused(502, _NOT_ALLOWED) from None
        self.started = True
        await self._send(self._connection.send(head))

    async def write(self, data: bytes) -> None:
        """Sends a part of the body and returns when the connection can take more."""
        for start in range(0, len(data), _PIECE):
            await self._send(self._connection.send(h11.Data(data=data[start : start + _PIECE])))

    async def finish(self) -> None:
        """Ends the body; a body shorter than its announced length raises `h11.LocalProtocolError`."""
        if self._connection.our_state is not h11.SWITCHED_PROTOCOL:
            await self._send(self._connection.send(h11.EndOfMessage()))

    async def switch(self) -> tuple[ByteStream, bytes]:
        """Accepts a CONNECT: returns the connection, and the bytes after the request. No other call may follow."""
        self._connection.next_event()  # the end of the request, which has no body
        await self.start(200, [], "Connection established")
        return self._stream, self._connection.trailing_data[0]

    async def line(self, status: int, text: str, *, close: bool = False) -> None:
        """Sends a whole response of one line, also as its reason phrase: clients show no more of a refused CONNECT."""
        body = f"{text}\n".encode()
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
        if status == 405:
            headers.append(("allow", "GET, HEAD"))
        if close:
            headers.append(("connection", "close"))
        await self.start(status, headers, text)
        await self.write(body)
        await self.finish()

    async def _send(self, data: bytes | None) -> None:
        if data:
            with anyio.fail_after(WAIT):
                await self._stream.send(data)
            self.moved()


Handler = Callable[[Request, Reply], Awaitable[None]]
OnUnreadable = Callable[[bytes], Awaitable[None]]
"""Gets the first bytes of an invalid request, or one with a forbidden body; it can raise `Refused` to answer."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How connections to one listener are answered."""

    handle: Handler
    connections: int
    """Maximum connections at the same time; others wait until one ends or has no request."""
    shared: Shared | None = None
    """Limits the connections of all listeners that share it together."""
    bodies: bool = False
    """Whether requests can have a body."""
    on_unreadable: OnUnreadable | None = None


async def serve(listener: Listener, serving: Serving) -> None:
    """Serves the connections to the listener until it is cancelled; no error of a connection ends it."""
    shared = serving.shared or Shared(serving.connections)
    async with anyio.create_task_group() as group:
        while True:
            try:
                stream = await listener.accept()
            except Exception as error:
                # The peer closed the connection before it was accepted, or descriptors ran out: serving goes on.
                if not isinstance(error, OSError):
                    _log.exception("a connection could not be accepted")
                await anyio.sleep(0.05)
                continue
            try:
                scope = anyio.CancelScope()
                place = await shared.take(listener, serving.connections, scope.cancel)
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
            group.start_soon(_connection, stream, serving, shared, place, scope)


async def _connection(
    stream: ByteStream, serving: Serving, shared: Shared, place: Place, scope: anyio.CancelScope
) -> None:
    try:
        with scope:
            async with stream:
                await _converse(stream, serving, place)
    except Exception as error:
        if not _foreseen(error):
            _log.exception("a connection failed")
    finally:
        shared.leave(place)


def _foreseen(error: Exception) -> bool:
    """Whether the error says only that the connection has ended; a task group wraps such errors."""
    if isinstance(error, ExceptionGroup):
        return all(map(_foreseen, error.exceptions))
    return isinstance(error, _ENDINGS)


async def _converse(stream: ByteStream, serving: Serving, place: Place) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)
    while True:
        place.wait()
        reply = Reply(stream, connection, place.moved)
        seen = bytearray(connection.trailing_data[0][:_SEEN])
        try:
            with anyio.fail_after(WAIT):
                head = await _head(stream, connection, seen, place.moved)
        except h11.RemoteProtocolError as error:
            place.work()
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await _unreadable(reply, serving, bytes(seen), error.error_status_hint)
            return
        if head is None:
            return
        place.work()
        if _has_body(head) and (head.method == "CONNECT" or not serving.bodies):
            await _unreadable(reply, serving, bytes(seen), 400, "requests with a body are not accepted here")
            return
        try:
            await serving.handle(head, reply)
            await reply.finish()
        except Refused as refused:
            if reply.started:
                return
            await reply.line(refused.status, str(refused))
        except Exception as error:
            if reply.started or _foreseen(error):
                raise
            _log.exception("a request failed")
            await reply.line(500, _UNFORESEEN, close=True)
        if connection.our_state is h11.SWITCHED_PROTOCOL:
            return
        # Closing the connection while data still arrives could make the peer lose the response.
        with anyio.fail_after(WAIT):
            await _discard_rest(stream, connection)
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return
        connection.start_next_cycle()


async def _unreadable(
    reply: Reply,
    serving: Serving,
    seen: bytes,
    status: int,
    line: str = "this is not a valid request",
) -> None:
    try:
        if serving.on_unreadable is not None:
            await serving.on_unreadable(seen)
    except Refused as refused:
        status, line = refused.status, str(refused)
    await reply.line(status, line, close=True)


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0").strip("0") != ""


async def _head(
    stream: ByteStream, connection: h11.Connection, seen: bytearray, moved: Callable[[], None]
) -> Request | None:
    """The next request, None at the end of the connection; its first bytes are added to `seen`."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await _more(stream, connection)
            seen += data[: _SEEN - len(seen)]
        elif isinstance(event, h11.Request):
            decode = partial(str, encoding="latin-1")
            lines = [(decode(name), decode(value)) for name, value in event.headers]
            body = _body(stream, connection, moved)
            return Request(decode(event.method), decode(event.target), dict(lines), lines, body)
        else:
            return None


async def _body(stream: ByteStream, connection: h11.Connection, moved: Callable[[], None]) -> AsyncIterator[bytes]:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            with anyio.fail_after(WAIT):
                await _more(stream, connection)
            moved()
        elif isinstance(event, h11.Data):
            yield bytes(event.data)
        else:
            return


async def _discard_rest(stream: ByteStream, connection: h11.Connection) -> None:
    """Reads and discards the rest of a body, up to a limit."""
    left = _DISCARDED
    while left > 0 and connection.their_state is h11.SEND_BODY:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            left -= len(await _more(stream, connection))


async def _more(stream: ByteStream, connection: h11.Connection) -> bytes:
    try:
        data = await stream.receive(HEAD)
    except anyio.EndOfStream:
        data = b""
    connection.receive_data(data)
    return data
