"""How long our own tools may be busy in a sandbox, where code can stop them, or write forever in their name."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

_SECONDS = 10.0
"""For all tools before a run, and for those after it: far more than they need."""
_SLOWEST_BYTES = 4 << 20
_SLOWEST_FILES = 100
"""Bytes and files per second: moving so many gives the tools a further second, at least ten times what they need."""


def seconds_for_bytes(size: int) -> float:
    """How much longer tools may be busy that have moved so many bytes."""
    return size / _SLOWEST_BYTES


def seconds_for_files(count: int) -> float:
    """How much longer tools may be busy that copy so many files."""
    return count / _SLOWEST_FILES


class Patience:
    """Until when the tools may be busy in one sandbox, and whether code hinders them."""

    def __init__(self) -> None:
        self.until = math.inf
        """On the clock of the event loop."""
        self.hindered = False
        """Whether a tool was slow or was killed: then code is paused before the next one starts."""
        self._most = math.inf

    @contextmanager
    def shared(self, most: float = math.inf) -> Iterator[None]:
        """While the scope lasts, all tools together have ten seconds, longer for the bytes that they move.

        `most` is how many seconds that can become.
        """
        now = anyio.current_time()
        self.until, self._most, self.hindered = now + _SECONDS, now + most, False
        try:
            yield
        finally:
            self.until = self._most = math.inf

    def moved(self, size: int) -> None:
        """Takes note of bytes that a tool has moved."""
        self.until = min(self.until + seconds_for_bytes(size), self._most)
