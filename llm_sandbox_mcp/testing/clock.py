"""A clock that jumps: where all that a test waits for is time, it does not wait."""

import asyncio
import selectors
from collections.abc import Mapping

import anyio.to_thread

_TURN = 0.0001
"""Seconds by which the loop is later after each turn in which something went on."""
_QUIET = 0.002
"""Real seconds of silence after which nothing but time is waited for; threads are told apart."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop with a time of its own, which goes on to the next timer at once and stands still between two runs.

    For anyio: `("asyncio", {"loop_factory": JumpingLoop})`. However slow the machine is, the same things take the same
    time.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._threads: anyio.CapacityLimiter | None = None
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now

    async def wait_for_threads(self) -> None:
        """From now on does not jump while one of the threads works that anyio lends to this loop."""
        self._threads = anyio.to_thread.current_default_thread_limiter()

    def turn(self) -> None:
        """Is a little later."""
        self._now += _TURN

    def jump(self, seconds: float) -> None:
        """Is later by so many seconds, unless something goes on beside the loop."""
        if self._threads is None or not self._threads.borrowed_tokens:
            self._now += seconds


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        if timeout <= 0:
            self._loop.turn()
            return super().select(0)
        events = super().select(min(timeout, _QUIET))
        if not events:
            self._loop.jump(timeout)
        return events


BACKEND: tuple[str, Mapping[str, object]] = ("asyncio", {"loop_factory": JumpingLoop})
"""What a fixture `anyio_backend` returns for it."""
