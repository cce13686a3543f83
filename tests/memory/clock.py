"""A clock that jumps ahead when a test waits for nothing but time, so that the test does not really wait."""

import asyncio
import selectors
from collections.abc import Mapping

import anyio.to_thread

_TURN = 0.0001
"""Seconds by which the clock advances after each turn of the loop that did some work."""
_QUIET = 0.002
"""Real seconds without events after which the loop waits only for time; threads are checked separately."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop with its own clock, which jumps to the next timer at once and stands still between two runs.

    For anyio: `("asyncio", {"loop_factory": JumpingLoop})`. The same work takes the same time, even on a slow machine.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._threads: anyio.CapacityLimiter | None = None
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now

    async def wait_for_threads(self) -> None:
        """From now on, the clock does not jump while one of anyio's worker threads for this loop is busy."""
        self._threads = anyio.to_thread.current_default_thread_limiter()

    def turn(self) -> None:
        """Advances the clock a little."""
        self._now += _TURN

    def jump(self, seconds: float) -> None:
        """Advances the clock by so many seconds, unless a worker thread is busy."""
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
"""The value that a fixture `anyio_backend` returns to use this loop."""
