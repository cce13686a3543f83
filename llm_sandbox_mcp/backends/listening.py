"""Listeners inside a sandbox whose connections are accepted outside: all that a sandbox without network can reach."""

import errno
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.abc import ByteStream

from ..aio.fds import RawStream, readable
from ..base.errors import ListeningFailed

PROXY_PORT = 3128
"""The port of the proxy in a sandbox whose policy allows hosts; each sandbox has its own loopback."""


def port_refused(port: int, reason: int) -> ListeningFailed:
    """The error to raise when the sandbox cannot listen on a port; `reason` is an errno."""
    in_use = reason == errno.EADDRINUSE
    step = "stop the program that listens there, or open a new session" if in_use else "open a new session"
    return ListeningFailed(f"the sandbox cannot listen on port {port}: {os.strerror(reason)}", step)


class Listener(ABC):
    """Accepts connections to one port of the sandbox's own 127.0.0.1; belongs to the scope that opened it."""

    port: int

    @abstractmethod
    async def accept(self) -> ByteStream:
        """The next connection; `OSError` if a connection was lost before it was accepted. Others may follow."""


@asynccontextmanager
async def listen_on(listening: socket.socket) -> AsyncIterator[Listener]:
    """A listener on a socket that listens already; the scope closes the socket."""
    with listening:
        listening.setblocking(False)
        yield _OnSocket(listening)


class _OnSocket(Listener):
    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.port = listening.getsockname()[1]

    async def accept(self) -> ByteStream:
        while True:
            try:
                return RawStream(self._listening.accept()[0])
            except BlockingIOError:
                await readable(self._listening)
