"""The calls that work began with: a client that cancels one cancels its work, if it does not only give up waiting."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from ..service.door import Door
from ..service.work import Work
from .bodies import claim_of

_GIVEN_UP = ("timed out", "timeout")
"""Parts of the reasons that clients send when they have waited for too long."""
_SOONEST = 4.5
"""Seconds. Hosts give up a call after 5 or more; a connection that ends earlier does not end because of that."""
_NOTICE = 0.1
"""Seconds to wait for the notification of a client whose call was cancelled; it arrives at the same time."""

_Key = tuple[Connection | None, str]


@dataclass(slots=True)
class _Call:
    work: Work
    begun: float = field(default_factory=anyio.current_time)
    notified: anyio.Event = field(default_factory=anyio.Event)


class Calls:
    """The calls of one transport that wait for work."""

    def __init__(self, door: Door, *, alone: bool) -> None:
        """`alone`: there is only one client. Then requests of all connections have different ids, and a call is only
        cancelled if the client wants that; over HTTP, a connection that ends cancels its calls, too.
        """
        self._door = door
        self._alone = alone
        self._calls: dict[_Key, _Call] = {}

    @asynccontextmanager
    async def waiting(self, ctx: ServerRequestContext[Any], work: Work) -> AsyncIterator[None]:
        """Holds while a call waits for its work.

        If the connection ends, so does the work, unless its client can have waited for too long and can find it again.
        Over HTTP, a client of the 2026 protocol says nothing else in either case.
        """
        key = self._key(ctx, ctx.request_id)
        call = self._calls[key] = _Call(work)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_NOTICE, shield=True):
                await call.notified.wait()
            if not call.notified.is_set():
                if self._alone or anyio.current_time() < call.begun + _SOONEST:
                    work.cancel()
                if not self._alone:
                    self._door.leave(work)
            raise
        finally:
            self._calls.pop(key, None)

    def notify(self, ctx: ServerRequestContext[Any]) -> None:
        """Cancels the work of a call that its client cancelled, unless the client waited for too long."""
        params = ctx.params or {}
        call = self._calls.get(self._key(ctx, params.get("requestId")))
        if call is None:
            return
        call.notified.set()
        reason = str(params.get("reason") or "").lower()
        if not any(part in reason for part in _GIVEN_UP):
            call.work.cancel()

    def _key(self, ctx: ServerRequestContext[Any], request_id: object) -> _Key:
        # The package offers handlers no public way to their connection.
        return None if self._alone else ctx.session._connection, str(request_id)


async def watch_cancellations(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    """Middleware that sees the notifications of clients."""
    if ctx.method == "notifications/cancelled":
        ctx.lifespan_context.calls.notify(ctx)
    return await call_next(ctx)


async def keep_room(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    """Middleware that keeps the room of a message until it is handled, also if its request ends before."""
    if ctx.request is None:
        return await call_next(ctx)
    with claim_of(ctx.request).kept():
        return await call_next(ctx)
