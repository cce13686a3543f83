"""Who is connected, and who is told when the artifacts of a session change."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated

from .uris import artifact_uri

_PATIENCE = 1.0
"""Seconds that a client may take to accept a notification before it is dropped; notifications are advisory."""


@dataclass(slots=True)
class Peer:
    """What is known of one connection."""

    sessions: set[str] = field(default_factory=set)
    """Ids of the sessions it used, with some of those that have ended since."""
    uris: set[str] = field(default_factory=set)
    """Resources it subscribed to in the way of the 2025 protocol."""


class Audience:
    """All connections of one transport.

    A connection of the 2025 protocol lasts; one of the 2026 protocol is made for each request, and changes reach that
    client through the stream that `listen` serves.
    """

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._peers: dict[Connection, Peer] = {}
        self._changed: set[tuple[str, str]] = set()
        """Session and name of each artifact that changed and was not told of yet: once, however often it changed."""
        self._more = anyio.Event()

    def peer(self, ctx: ServerRequestContext[Any]) -> Peer:
        """The record of the connection that a request came over."""
        # The package offers handlers no public way to their connection.
        connection = ctx.session._connection
        if (peer := self._peers.get(connection)) is None:
            peer = self._peers[connection] = Peer()
            connection.exit_stack.callback(self._peers.pop, connection, None)
        return peer

    def tell(self, session_id: str, names: tuple[str, ...]) -> None:
        """Notes that artifacts changed; never waits."""
        self._changed.update((session_id, name) for name in names)
        self._more.set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Passes changes on until the block ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on)
            yield
            tasks.cancel_scope.cancel()

    async def _pass_on(self) -> None:
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            uris, self._changed = {artifact_uri(*changed) for changed in self._changed}, set()
            for uri in uris:
                await self._bus.publish(ResourceUpdated(uri))
            # Resource lists hold no artifacts, as their addresses are secrets; the notice says that there are new ones.
            await self._bus.publish(ResourcesListChanged())
            async with anyio.create_task_group() as tasks:
                for connection, peer in self._peers.items():
                    tasks.start_soon(_inform, connection, peer.uris & uris)


async def _inform(connection: Connection, uris: Iterable[str]) -> None:
    with anyio.move_on_after(_PATIENCE):
        for uri in uris:
            await connection.send_resource_updated(uri)
        await connection.send_resource_list_changed()
