"""Waiting until a descriptor can be read or written, also where the kernel will not watch it."""

import errno
import select
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
import anyio.lowlevel


class HasDescriptor(Protocol):
    """Such as a socket."""

    def fileno(self) -> int: ...


Watched = int | HasDescriptor

_AGAIN = 0.02
"""Seconds between two looks at what is not watched."""


async def readable(watched: Watched) -> None:
    """Returns once reading does not block; raises as `anyio.wait_readable` does."""
    await _ready(anyio.wait_readable, watched, select.POLLIN)


async def writable(watched: Watched) -> None:
    """The same, for writing."""
    await _ready(anyio.wait_writable, watched, select.POLLOUT)


async def _ready(wait: Callable[[Watched], Awaitable[None]], watched: Watched, event: int) -> None:
    try:
        await wait(watched)
    except PermissionError:  # a regular file or the null device: always ready, and epoll refuses to watch it
        await anyio.lowlevel.checkpoint()
    except OSError as error:
        # All watches of this user are taken, by code of the same uid or by anyone else: epoll(7), max_user_watches.
        if error.errno != errno.ENOSPC:
            raise
        poll = select.poll()
        poll.register(watched, event)
        while not poll.poll(0):  # noqa: ASYNC110 - nobody else would tell
            await anyio.sleep(_AGAIN)
