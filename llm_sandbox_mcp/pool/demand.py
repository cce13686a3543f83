"""How many sandboxes of one kind were asked for at about the same time, in the last minutes."""

from collections import deque

_TOGETHER = 0.5
"""Seconds within which requests count as made at the same time."""
_REMEMBERED = 120.0
"""Seconds for which a rush of requests counts: what came once may come again."""
_MOST = 1000
"""Requests that are counted together; a stock is never that large."""


class Demand:
    """The requests for sandboxes of one kind."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_MOST)
        self._rushes: deque[tuple[float, int]] = deque()
        """The times and sizes of the largest rushes: each later one is smaller, so the first is the largest."""

    def note(self, now: float) -> None:
        """Counts one request."""
        self._recent.append(now)
        while self._recent[0] < now - _TOGETHER:
            self._recent.popleft()
        size = len(self._recent)
        while self._rushes and self._rushes[-1][1] <= size:
            self._rushes.pop()
        self._rushes.append((now, size))

    def most(self, now: float) -> int:
        """The size of the largest rush; 0 if nothing was asked for lately."""
        while self._rushes and self._rushes[0][0] < now - _REMEMBERED:
            self._rushes.popleft()
        return self._rushes[0][1] if self._rushes else 0
