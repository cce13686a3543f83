"""Waiting until a descriptor can be read or written, even if the kernel does not watch it."""

import errno
import select
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
import anyio.lowlevel


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
    """The same, for writing."""
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
