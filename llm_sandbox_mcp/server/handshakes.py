"""Clients of the older protocol, which are remembered after their handshake: how many, and which give way to others."""

from dataclasses import dataclass

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..network.sharing import Place, Shared

CLIENTS = 1000
"""Clients that are remembered, with about 40 KB each, until they are silent for half an hour."""

_SESSION = "mcp-session-id"
_HANDSHAKE = 2
"""Requests of a handshake."""
_PATIENCE = 1.0
"""Seconds to end the sessions of clients that gave way."""


@dataclass(eq=False, slots=True)
class _Client:
    place: Place
    requests: int = 1
    """That it sent, but for streams of news."""
    working: int = 0
    """Those in progress."""


class Handshakes:
    """An application that forgets a client for another one where there are too many, by the rules of `Shared`.

    Of one address, those that did no more than their handshake give way first, then those that are idle for longest.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._shared = Shared(CLIENTS)
        self._clients: dict[str, _Client] = {}
        self._given_up: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = Headers(scope=scope).get(_SESSION) if scope["type"] == "http" else ""
        if name is None:
            await self._open(scope, receive, send)
        elif (client := self._clients.get(name)) is None or scope["method"] == "GET":
            await self._app(scope, receive, send)
        else:
            await self._use(name, client, scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Does a request that can be a handshake; only one that succeeds takes the place of another client."""
        address, _ = scope.get("client") or ("", 0)
        same = [(name, value) for name, value in scope["headers"] if name in (b"host", b"origin")]
        ending = {**scope, "method": "DELETE"}

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                name = Headers(raw=message["headers"]).get(_SESSION)
                if name is not None:
                    self._remember(name, address)
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            with anyio.move_on_after(_PATIENCE, shield=True):
                while self._given_up:
                    name = (_SESSION.encode(), self._given_up.pop().encode())
                    await self._app({**ending, "headers": [*same, name]}, _receive_nothing, _send_nothing)

    async def _use(self, name: str, client: _Client, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        client.requests += 1
        client.working += 1
        client.place.work()
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            client.working -= 1
            if not client.working:
                client.place.wait(late=client.requests > _HANDSHAKE)
            if status == 404 or (status == 200 and scope["method"] == "DELETE"):
                self._clients.pop(name, None)
                self._shared.leave(client.place)

    def _remember(self, name: str, address: str) -> None:
        def give_up() -> None:
            self._clients.pop(name, None)
            self._given_up.append(name)

        place = self._shared.take_now(address, CLIENTS, give_up)
        if place is None:
            give_up()
        else:
            self._clients[name] = _Client(place)


async def _receive_nothing() -> Message:
    return {"type": "http.request"}


async def _send_nothing(_: Message) -> None:
    pass
