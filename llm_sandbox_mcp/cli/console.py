"""Writing to the person's console, without stopping the event loop and without obeying what code prints."""

import os
import sys

from ..escaping import escape, one_line
from ..readiness import writable

_PORTION = 4096
"""A pipe that is ready takes this much without blocking (PIPE_BUF)."""


def say(text: str) -> None:
    """Prints one line of our own."""
    sys.stdout.write(f"{escape(text)}\n")
    sys.stdout.flush()


class Console:
    """One descriptor of this process. Text is escaped where a terminal would obey it, and passed as it is otherwise."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._terminal = os.isatty(descriptor)
        self._line_open = False

    async def write(self, text: str) -> None:
        """Writes text as soon as it is taken; raises `BrokenPipeError` when nobody reads any more."""
        if not text:
            return
        self._line_open = not text.endswith("\n")
        shown = escape(text.replace("\r\n", "\n")) if self._terminal else text
        data = memoryview(shown.encode(errors="replace"))
        while data:
            await writable(self._descriptor)
            data = data[os.write(self._descriptor, data[:_PORTION]) :]

    async def line(self, text: str) -> None:
        """Writes a line of its own; what was written before ends first."""
        await self.write(f"\n{text}\n" if self._line_open else f"{text}\n")

    async def note(self, text: str) -> None:
        """Writes a line of our own, in which text of the code's may be, escaped wherever it goes."""
        await self.line(one_line(text))
