"""Joins two connections: data from either one is sent to the other."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import anyio
from anyio.abc import ByteStream

from ..aio.fds import RawStream

_PIECE = 1 << 16
_SPLICE_AFTER = 1 << 20
"""Bytes after which the rest is moved through a pipe, inside the kernel; a pipe takes two descriptors."""
_PIPE = 1 << 20
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError)
_SPLICES = hasattr(os, "splice")
"""Whether the kernel can do this, as Linux can."""


async def carry(
    one: ByteStream, other: ByteStream, idle: float, pipes: anyio.Semaphore, on_data: Callable[[], None]
) -> None:
    """Returns once both directions have ended, a connection is lost, or no data moved for `idle` seconds.

    A direction that moves much data takes one of the pipes, if one is free. Calls `on_data` whenever data moved.
    """
    with anyio.CancelScope(deadline=anyio.current_time() + idle) as scope:

        def moved() -> None:
            scope.deadline = anyio.current_time() + idle
            on_data()

        async def pass_on(source: ByteStream, target: ByteStream) -> None:
            try:
                with suppress(anyio.EndOfStream):
                    await _pass_on(source, target, moved, pipes)
                await target.send_eof()
            except _GONE:
                scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on, one, other)
            tasks.start_soon(pass_on, other, one)


async def _pass_on(source: ByteStream, target: ByteStream, moved: Callable[[], None], pipes: anyio.Semaphore) -> None:
    total = 0
    while (
        total < _SPLICE_AFTER or not _SPLICES or not (isinstance(source, RawStream) and isinstance(target, RawStream))
    ):
        data = await source.receive(_PIECE)
        moved()
        await target.send(data)
        moved()
        total += len(data)
    try:
        with _pipe(pipes) as (outlet, inlet):
            await _splice(source, target, outlet, inlet, moved)
    except (anyio.WouldBlock, OSError):  # no pipe is free: the rest is copied
        while True:
            await target.send(await source.receive(_PIECE))
            moved()


async def _splice(source: RawStream, target: RawStream, outlet: int, inlet: int, moved: Callable[[], None]) -> None:
    flags = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
    take = partial(os.splice, source.socket.fileno(), inlet, _PIPE, flags=flags)
    while left := await source.when_readable(take):
        moved()
        while left:
            give = partial(os.splice, outlet, target.socket.fileno(), left, flags=flags)
            left -= await target.when_writable(give)
            moved()


@contextmanager
def _pipe(pipes: anyio.Semaphore) -> Iterator[tuple[int, int]]:
    pipes.acquire_nowait()
    with ExitStack() as stack:
        stack.callback(pipes.release)
        outlet, inlet = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, outlet)
        stack.callback(os.close, inlet)
        with suppress(OSError):  # the kernel limits the number of large pipes of an ordinary user
            fcntl.fcntl(inlet, fcntl.F_SETPIPE_SZ, _PIPE)
        yield outlet, inlet
