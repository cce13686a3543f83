"""Output of a run between two looks at it, within a limit."""

from collections import deque

from ..results import Output


class NewOutput:
    """One stream's output since it was last taken: the end of it, if there is more than the limit."""

    def __init__(self, limit: int) -> None:
        """`limit` is in characters."""
        self._limit = limit
        self._parts: deque[str] = deque()
        self._length = 0
        self._omitted = 0

    def add(self, text: str) -> None:
        """Takes more output; drops the oldest beyond the limit."""
        self._parts.append(text)
        self._length += len(text)
        while (excess := self._length - self._limit) > 0:
            oldest = self._parts.popleft()
            if len(oldest) > excess:
                self._parts.appendleft(oldest[excess:])
            dropped = oldest[:excess]
            self._length -= len(dropped)
            self._omitted += len(dropped.encode(errors="replace"))

    def take(self) -> Output:
        """The output since the last call."""
        taken = Output("".join(self._parts), self._omitted)
        self._parts.clear()
        self._length = self._omitted = 0
        return taken
