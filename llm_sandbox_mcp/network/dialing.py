"""How an HTTP client connects, so that addresses can be checked before it does, and why a request of it failed.

Apart from `connecting.py`, which every server imports: an HTTP client would delay its start.
"""

import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import httpcore2

FAILURES = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
)
"""The errors that a request can raise."""


def describe(error: BaseException) -> str:
    """Why a request failed, without the name of the host, which callers put before it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"failed at TLS: {getattr(cause, 'verify_message', '') or cause.reason or 'no reason given'}"
        if isinstance(cause, socket.gaierror):
            return "cannot be resolved"
        if isinstance(cause, OSError) and cause.errno:
            return f"cannot be reached: {os.strerror(cause.errno)}"
        if isinstance(cause, httpcore2.TimeoutException):
            return "did not answer in time"
        cause = cause.__cause__ or cause.__context__
    return f"did not complete the request ({type(error).__name__})"


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
