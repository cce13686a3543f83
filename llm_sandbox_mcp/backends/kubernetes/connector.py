"""The sockets to a cluster, all of which are closed when their owner closes the connector."""

import socket
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from anyio.lowlevel import cancel_shielded_checkpoint

_UNREAD = 256 << 10
"""The receive buffer of one connection, in bytes: by default, the kernel buffers many MiB of an output flood."""


def _open(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD)
    return opened


class Connector(aiohttp.TCPConnector):
    """aiohttp's connector, with a way to close every connection that it made.

    aiohttp forgets a connection whose answer was not read to its end, and first waits for a TLS shutdown by the other
    side; if that is busy, the connection stays open for half a minute after everything else is closed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, socket_factory=_open)
        self._made: WeakSet[Any] = WeakSet()

    async def abort(self) -> None:
        """Closes every connection that is still open, whether or not the other side still answers."""
        for transport in list(self._made):
            transport.abort()
        # The event loop closes the sockets of aborted connections in its next iteration.
        await cancel_shielded_checkpoint()

    async def _create_connection(self, *args: Any) -> ResponseHandler:
        made = await super()._create_connection(*args)
        self._made.add(made.transport)
        return made
