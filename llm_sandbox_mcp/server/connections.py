"""Limits on connections of HTTP clients: how many, for how long nothing is sent or read, and one answer a request.

Each connection takes an open file of the server, and sandboxes need open files as well.
"""

import asyncio
import socket
from collections import Counter
from functools import partial
from typing import Any

import h11
from anyio import BrokenResourceError, ClosedResourceError
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ..network.sharing import Shared, client_of

SILENT = 5.0
"""Seconds that a client may take for its first request."""
STALLED = 10.0
"""Seconds that a client may send nothing in the middle of a request."""
WHOLE = 120.0
"""Seconds that a client may take to send a whole request."""
UNREAD = 60.0
"""Seconds that a client may leave an answer unread, or be unreachable while an answer waits."""
WAITING = 2048
"""Connections that may wait to be accepted."""
_AT_ONCE = 8
"""Connections that are accepted in one batch; three batches begin before one of the first can be refused."""
_MORE = 16
"""Connections above the limit that still get an answer with the reason; any more are closed at once."""

_LISTENS = (b"mcp-method", b"subscriptions/listen")
"""The header of a request for news in the 2026 protocol; in others, it has the method GET."""


def prepare(listener: socket.socket) -> None:
    """Sets the options of each connection that is accepted; one whose client does not read ends after `UNREAD`."""
    # An answer is written in parts; without this, the kernel holds back the last until the first arrived: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD * 1000))


def bounded(most: int) -> dict[str, Any]:
    """Settings for uvicorn: requests on more connections than `most` get status 503, unless others give way to them."""
    return {"http": partial(_Connection, Shared(most), most, Counter()), "backlog": _AT_ONCE}


class _Connection(H11Protocol):
    """Ends if no request comes in time, if a request stalls, and at once if there are too many connections.

    Where there are too many, it gives way to others by the rules of `Shared`, for each address. It is idle without a
    whole request, and with a stream of news, which it can open again.
    """

    def __init__(self, shared: Shared, most: int, left: Counter[object], **settings: Any) -> None:
        """`left` counts the requests in progress whose connections have ended, of each owner of a place."""
        super().__init__(**settings)
        self._shared = shared
        self._most = most
        self._left = left
        self._lost = False
        self._asked = 0
        """Requests in progress."""
        self._application, self.app = self.app, self._answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._take_place()
        self._first_request = self.loop.call_later(SILENT, self._end_if_silent)
        self._rest: asyncio.TimerHandle | None = None
        self._began: float | None = None
        """When the first part of a request arrived, while its rest is missing."""
        if self._place is None and len(self.connections) > self._most + _MORE:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._place is None:
            self._take_place()
        # uvicorn's own limit would also refuse the requests of those that have a place: none, or all.
        self.limit_concurrency = None if self._place is not None and self._may_ask(self._place.owner) else 0
        before = self.cycle
        super().data_received(data)
        self._wait_for_the_rest()
        self._note_request(before)

    def on_response_complete(self) -> None:
        if self._place is not None:
            self._place.wait()
        before = self.cycle
        super().on_response_complete()  # the next request can have arrived
        self._note_request(before)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._place is not None:
            self._shared.leave(self._place)
            if self._asked:
                self._left[self._place.owner] += self._asked
        self._first_request.cancel()
        if self._rest is not None:
            self._rest.cancel()
        super().connection_lost(exc)

    def _may_ask(self, owner: object) -> bool:
        """Whether the owner's clients left so few requests in progress that others can leave as many."""
        return not self._left[owner] or self._left[owner] + self._left.total() < 2 * self._most

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        self._asked += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self._asked -= 1
            if self._lost and self._place is not None:
                self._left[self._place.owner] -= 1
                self._left += Counter()  # drops owners without any

    def _take_place(self) -> None:
        address = self.client[0] if self.client else ""
        self._place = self._shared.take_now(client_of(address), self._most, self.transport.abort)

    def _note_request(self, before: RequestResponseCycle | None) -> None:
        """Notes what the connection does now; `before` is the request that was known before."""
        if self._place is None or self.cycle is None:
            return
        listens = self.scope["method"] == "GET" or _LISTENS in self.headers
        if self.cycle is not before:
            self._place.wait(late=listens)
        cut = self.conn.their_state is h11.SEND_BODY
        if self._place.idle and not (listens or cut or self.cycle.response_complete):
            self._place.work()

    def _wait_for_the_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        head_is_cut = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not head_is_cut and self.conn.their_state is not h11.SEND_BODY:
            self._rest = self._began = None
            return
        now = self.loop.time()
        self._began = now if self._began is None else self._began
        self._rest = self.loop.call_at(min(now + STALLED, self._began + WHOLE), self._end_if_stalled)

    def _end_if_stalled(self) -> None:
        if self.flow.read_paused:  # the server has yet to read what arrived, so the client does not stall
            self._began = None
            self._wait_for_the_rest()
        else:
            self.transport.abort()

    def _end_if_silent(self) -> None:
        if self.conn.their_state is h11.IDLE and self.cycle is None:
            self.transport.close()


TOO_LATE = (BrokenResourceError, ClosedResourceError)
"""What the `mcp` package raises if it passes a message on to a session that has ended in the meantime.

It answers notifications first; then it would answer again, with this error.
"""


class SingleAnswer:
    """An application whose errors of this kind are dropped if the request has its answer already."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def send_once(message: Message) -> None:
            nonlocal answered
            if not answered:
                await send(message)
                answered = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await self._application(scope, receive, send_once)
        except TOO_LATE:
            if not answered:
                raise
