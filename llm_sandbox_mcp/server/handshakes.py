"""Clients of the older protocol, which are remembered after their handshake: how many, and which give way to others."""

from collections import deque
from dataclasses import dataclass

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..network.sharing import Place, Shared, client_of

CLIENTS = 1000
"""Clients that are remembered, with about 40 KB each, until they are silent for half an hour."""

_SESSION = "mcp-session-id"
_PATH = "/mcp"
_OVER = (200, 404)
"""Answers to the end of a session: it was there, or it was not."""
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

    def __init__(self, app: ASGIApp, host: str) -> None:
        """`host` is a name of this server that the application accepts."""
        self._app = app
        self._host = host.encode()
        self._shared = Shared(CLIENTS)
        self._clients: dict[str, _Client] = {}
        self._given_up: deque[str] = deque()
        """Those that the application still remembers."""

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
        # Nothing that this client chose: it decides neither whether others end nor what is kept for that.
        ending = {**scope, "method": "DELETE", "path": _PATH, "raw_path": _PATH.encode(), "query_string": b""}

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                name = Headers(raw=message["headers"]).get(_SESSION)
                if name is not None:
                    self._remember(name, client_of(address))
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            with anyio.move_on_after(_PATIENCE, shield=True):
                for _ in range(len(self._given_up)):
                    await self._end_one(ending)

    async def _end_one(self, ending: Scope) -> None:
        """Has the application forget one of those that gave way; if it does not, another request tries again."""
        if not self._given_up:  # another request was faster
            return
        name, status = self._given_up.popleft(), 0

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)

        try:
            headers = [(b"host", self._host), (_SESSION.encode(), name.encode())]
            await self._app({**ending, "headers": headers}, _receive_nothing, note)
        finally:
            if status not in _OVER:
                self._given_up.append(name)

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

    def _remember(self, name: str, owner: str) -> None:
        def give_up() -> None:
            self._clients.pop(name, None)
            self._given_up.append(name)

        place = self._shared.take_now(owner, CLIENTS, give_up)
        if place is None:
            give_up()
        else:
            self._clients[name] = _Client(place)


async def _receive_nothing() -> Message:
    return {"type": "http.request"}
