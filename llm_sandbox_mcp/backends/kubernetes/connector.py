"""The sockets to a cluster, all of which are closed when their owner lets go of them."""

import socket
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from anyio.lowlevel import cancel_shielded_checkpoint

_UNREAD = 256 << 10
"""Bytes that wait to be read from one connection: left to itself, a kernel keeps many MiB of what a flood prints."""


def _open(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD)
    return opened


class Connector(aiohttp.TCPConnector):
    """aiohttp's own, that outlives no connection.

    aiohttp forgets a connection whose answer was not read to its end, and says goodbye to the other side first; a busy
    one leaves it open for half a minute after all else is closed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, socket_factory=_open)
        self._made: WeakSet[Any] = WeakSet()

    async def abort(self) -> None:
        """Ends what is left of every connection, whether or not the other side still answers."""
        for transport in list(self._made):
            transport.abort()
        # The event loop closes the sockets of what was aborted in its next turn.
        await cancel_shielded_checkpoint()

    async def _create_connection(self, *args: Any) -> ResponseHandler:
        made = await super()._create_connection(*args)
        self._made.add(made.transport)
        return made
