"""What listens inside a sandbox and is accepted outside: all that a sandbox without a network can reach."""

import errno
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.abc import ByteStream

from ..errors import ListeningFailed
from ..readiness import readable
from ..sockets import RawStream

PROXY_PORT = 3128
"""Where a sandbox finds the proxy, if its policy grants it hosts; each sandbox has a loopback of its own."""


def port_refused(port: int, reason: int) -> ListeningFailed:
    """What is raised where a sandbox's own port cannot be had, for a reason of errno."""
    step = "end what listens there, or use a new session" if reason == errno.EADDRINUSE else "use a new session"
    return ListeningFailed(f"port {port} of the sandbox cannot be listened at: {os.strerror(reason)}; {step}")


class Listener(ABC):
    """Connections to one port of the sandbox's own 127.0.0.1; it belongs to the scope that opened it."""

    port: int

    @abstractmethod
    async def accept(self) -> ByteStream:
        """The next connection; `OSError` when one was lost before it was accepted, and others may follow."""


@asynccontextmanager
async def listen_on(listening: socket.socket) -> AsyncIterator[Listener]:
    """A socket that listens already, closed with the scope."""
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
