"""The connected clients, and their notifications when the artifacts of a session change."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from ..network.sharing import client_of
from ..service import Service
from .calls import Calls
from .uris import artifact_uri

_PATIENCE = 1.0
"""Seconds that a client has to accept a notification; after that, the notification is dropped, as it is advisory."""


@dataclass(slots=True)
class Peer:
    """What is known about one connection."""

    sessions: set[str] = field(default_factory=set)
    """Ids of the sessions that it used; some of these sessions may have ended."""
    uris: set[str] = field(default_factory=set)
    """Resources that it subscribed to with the 2025 protocol."""


class Audience:
    """All connections of one transport.

    With the 2025 protocol, a connection lasts. With the 2026 protocol, each request is a connection, and the client
    learns of changes through the stream that `listen` serves.
    """

    def __init__(self, service: Service, calls: Calls) -> None:
        self._service = service
        self.calls = calls
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._peers: dict[Connection, Peer] = {}
        self._changed: set[tuple[str, str]] = set()
        """Session and name of each artifact that changed and is not reported yet; once, however often it changed."""
        self._more = anyio.Event()

    def peer(self, ctx: ServerRequestContext[Any]) -> Peer:
        """The record of the connection that a request came over."""
        # The package offers handlers no public way to their connection.
        connection = ctx.session._connection
        if (peer := self._peers.get(connection)) is None:
            peer = self._peers[connection] = Peer()
            connection.exit_stack.callback(self._peers.pop, connection, None)
        return peer

    def note_use(self, ctx: ServerRequestContext[Any], session_id: str) -> None:
        """Records that a connection named or opened a session, so that it sees the session while it lives."""
        used = self.peer(ctx).sessions
        used.add(session_id)
        if len(used) > 2 * self._service.profile.sessions.max:
            used.intersection_update(info.id for info in self._service.sessions.list())

    def notify(self, session_id: str, names: tuple[str, ...]) -> None:
        """Queues the news that artifacts changed; never waits."""
        self._changed.update((session_id, name) for name in names)
        self._more.set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Reports changes to the clients until the block ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on)
            yield
            tasks.cancel_scope.cancel()

    async def _pass_on(self) -> None:
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            changed, self._changed = self._changed, set()
            uris = set[str]()
            for session_id, name in changed:
                uris.add(uri := artifact_uri(session_id, name))
                await self._bus.publish(ResourceUpdated(uri))
                await anyio.lowlevel.checkpoint()  # others get their turn: a session can have thousands of artifacts
            async with anyio.create_task_group() as tasks:
                for connection, peer in self._peers.items():
                    if followed := peer.uris & uris:
                        tasks.start_soon(_inform, connection, followed)


Context = ServerRequestContext[Audience]
"""What comes with a request."""


def origin_of(ctx: Context) -> tuple[str, ...]:
    """Where a request came from: over HTTP its address, and its connection if the protocol has lasting ones."""
    client = ctx.request.client if ctx.request is not None else None
    # The package offers handlers no public way to their connection.
    return (client_of(client.host), ctx.session._connection.session_id or "") if client is not None else ()


async def _inform(connection: Connection, uris: Iterable[str]) -> None:
    with anyio.move_on_after(_PATIENCE):
        for uri in uris:
            await connection.send_resource_updated(uri)
