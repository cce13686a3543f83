"""Waiting for descriptors, even those that the kernel does not watch; and sockets as byte streams."""

import errno
import os
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream


class HasDescriptor(Protocol):
    """An object with a descriptor, such as a socket."""

    def fileno(self) -> int: ...


Watched = int | HasDescriptor

_INTERVAL = 0.02
"""Seconds between two checks of a descriptor that is not watched."""


async def readable(watched: Watched) -> None:
    """Returns once reading does not block; raises as `anyio.wait_readable` does."""
    await _ready(anyio.wait_readable, watched, select.POLLIN)


async def writable(watched: Watched) -> None:
    """Returns once writing does not block; raises as `anyio.wait_writable` does."""
    await _ready(anyio.wait_writable, watched, select.POLLOUT)


async def _ready(wait: Callable[[Watched], Awaitable[None]], watched: Watched, event: int) -> None:
    try:
        await wait(watched)
    except PermissionError:  # a regular file or the null device: it is always ready, and epoll refuses it
        await anyio.lowlevel.checkpoint()
    except OSError as error:
        # This user has reached max_user_watches of epoll(7), perhaps because of code with the same uid.
        if error.errno != errno.ENOSPC:
            raise
        poll = select.poll()
        poll.register(watched, event)
        while not poll.poll(0):  # noqa: ASYNC110 - there is nothing to wait for
            await anyio.sleep(_INTERVAL)


T = TypeVar("T")

_READ = 1 << 16


class RawStream(ByteStream):
    """A connected socket; a cancelled `receive` loses no data, a cancelled `send` may have sent a part of it."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected

    @classmethod
    async def connect(cls, address: str, port: int) -> "RawStream":
        """Connects to one IPv4 or IPv6 address; raises `OSError`."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        stream = cls(socket.socket(family, socket.SOCK_STREAM))
        try:
            with suppress(BlockingIOError):
                stream.socket.connect((address, port))
            await writable(stream.socket)
            if error := stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, os.strerror(error))
        except BaseException:
            stream.close()
            raise
        return stream

    async def receive(self, max_bytes: int = _READ) -> bytes:
        data = await self.when_readable(partial(self.socket.recv, max_bytes))
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            rest = rest[await self.when_writable(partial(self.socket.send, rest)) :]

    async def send_eof(self) -> None:
        await anyio.lowlevel.checkpoint()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        self.close()
        await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        """Closes the socket, for code that cannot await; does nothing if it is closed already."""
        if self.socket.fileno() >= 0:
            anyio.notify_closing(self.socket)
            self.socket.close()

    async def when_readable(self, call: Callable[[], T]) -> T:
        """Repeats a call that would block, each time after waiting for data to read, and returns its result."""
        return await self._when(readable, call)

    async def when_writable(self, call: Callable[[], T]) -> T:
        """Repeats a call that would block, each time after waiting for room to write, and returns its result."""
        return await self._when(writable, call)

    async def _when(self, ready: Callable[[Watched], Awaitable[None]], call: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint_if_cancelled()
        waited = False
        while True:
            if self.socket.fileno() < 0:
                raise anyio.ClosedResourceError
            try:
                result = call()
            except BlockingIOError:
                await ready(self.socket)
                waited = True
            except OSError as error:
                raise anyio.BrokenResourceError from error
            else:
                break
        if not waited:
            # Other tasks get a turn if this one did not wait. It is shielded: a cancellation would lose the data read.
            await anyio.lowlevel.cancel_shielded_checkpoint()
        return result
