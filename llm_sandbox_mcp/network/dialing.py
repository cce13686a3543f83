"""How an HTTP client connects, so that addresses can be checked before it does.

Apart from `connecting.py`, which every server imports: an HTTP client would delay its start.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import httpcore2


class Dialer(httpcore2.AsyncNetworkBackend):
    """Connects to the first of the addresses from `find`, for a host and a port, that answers."""

    def __init__(self, find: Callable[[str, int], Awaitable[Sequence[str]]]) -> None:
        self._find = find
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception = httpcore2.ConnectError("no address")
        for address in await self._find(host, port):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure
