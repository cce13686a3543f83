"""Who is connected, and who is told when the artifacts of a session change."""

import math
from collections.abc import AsyncIterator
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
    """Ids of the sessions it used."""
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
        self._changes, self._changed = anyio.create_memory_object_stream[tuple[str, tuple[str, ...]]](math.inf)

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
        self._changes.send_nowait((session_id, names))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Passes changes on until the block ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                self._changes.close()
                self._changed.close()

    async def _pass_on(self) -> None:
        async for session_id, names in self._changed:
            uris = [artifact_uri(session_id, name) for name in names]
            for uri in uris:
                await self._bus.publish(ResourceUpdated(uri))
            # Resource lists hold no artifacts, as their addresses are secrets; the notice says that there are new ones.
            await self._bus.publish(ResourcesListChanged())
            for connection, peer in list(self._peers.items()):
                with anyio.move_on_after(_PATIENCE):
                    for uri in peer.uris.intersection(uris):
                        await connection.send_resource_updated(uri)
                    await connection.send_resource_list_changed()
