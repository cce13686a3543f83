"""Requests whose bodies wait for memory before they are read.

Whoever sends little never waits, unless its messages that are handled have all. A larger body needs room before it is
read, and more before it is parsed if much comes of it; it has this room until its request is answered and its message
is handled, which can be later, as all of it is kept until then.
"""

from collections.abc import Awaitable, Callable

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..network.sharing import client_of
from .memory import Body, Claim, Room

SMALL = 64 << 10
"""Bytes of a body that needs no room; each connection can have so many anyway, before a request is looked at."""
ROOM = 256 << 20
"""Bytes of all larger bodies together; more if four of the largest need it."""
_JSON = 4 << 20
"""Bytes of the largest body that is parsed; only files are larger."""
_HANDLED = 32 << 10
"""Bytes that a message takes at least while it is handled."""
_KEY = "llm_sandbox_mcp.room"
"""Where the scope of a request has its `Claim`."""
_AGAIN = 5
"""Seconds after which a client should try again."""

Refuse = Callable[[Request, HTTPException], Awaitable[Response]]
"""Makes the answer to a request that is refused."""


def claim_of(request: Request) -> Claim:
    """The room of a request that `Bodies` passed on."""
    claim: Claim = request.scope[_KEY]
    return claim


class Bodies:
    """An application whose requests wait for room before their bodies are read."""

    def __init__(self, app: ASGIApp, largest: int, refuse: Refuse) -> None:
        """`largest` is the size of the largest body that the application keeps; of a larger one it keeps nothing."""
        self._app = app
        self._largest = largest
        self._refuse = refuse
        self._quarter = max(ROOM // 4, largest)
        self._room = Room(4 * self._quarter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address, _ = scope.get("client") or ("", 0)
        headers = Headers(scope=scope)
        # Beside chunks, an announced length means nothing.
        announced = "" if "transfer-encoding" in headers else headers.get("content-length", "")
        size = int(announced[:20]) if announced.isdecimal() else 0
        begun = False

        async def receive_with_room() -> Message:
            if body.complete:
                return await receive()
            if not body.size and max(size, body.got) > SMALL:
                await self._room.grow(body, min(size or self._largest, self._largest))
            body.heard = anyio.current_time()
            message = await receive()
            body.heard = anyio.current_time()
            part = message.get("body", b"")
            body.got += len(part)
            body.parsed.add(part)
            if not message.get("more_body", False):
                body.complete = True
                needed = min(body.parsed.size, self._quarter) if body.got <= _JSON else body.got
                needed = max(needed, body.answer)
                if body.got and (needed > max(SMALL, body.size) or self._room.is_full_of(body)):
                    await self._room.grow(body, needed)
                self._room.shrink(body, needed)
                body.needed = max(needed, _HANDLED)
            return message

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        with anyio.CancelScope() as whole:
            body = Body(client_of(address), whole)
            with self._room.use(body):
                await self._app({**scope, _KEY: Claim(self._room, body)}, receive_with_room, send_and_note)
        if body.refused and not begun:
            error = HTTPException(503, body.refused, {"Retry-After": str(_AGAIN)})
            response = await self._refuse(Request(scope, receive), error)
            await response(scope, receive, send)
