"""Limits how often something is started per second."""

import math

import anyio

from ..base.errors import CapacityReached
from ..base.units import format_duration


class RateLimit:
    """Limits the starts of sandboxes: those of one second are allowed at once, more only at the given rate."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left = 0.0
        self._at = -math.inf

    def take(self) -> None:
        """Counts one start; raises `CapacityReached`, with the time to wait, if there were too many."""
        now = anyio.current_time()
        due = (now - self._at) * self._per_second
        self._left, self._at = min(max(1.0, self._per_second), self._left + due), now
        if self._left < 1:
            wait = (1 - self._left) / self._per_second
            raise CapacityReached(
                f"sandboxes are started at most {self._per_second:g} times a second",
                f"try again in {format_duration(wait)}, or raise sessions.starts_per_second in the profile",
            )
        self._left -= 1
