"""Writing to the user's console, without blocking the event loop and without terminal escape sequences from code."""

import os
import sys

from ..escaping import escape, one_line
from ..readiness import writable

_PORTION = 4096
"""A pipe that is ready accepts this many bytes without blocking (PIPE_BUF)."""


def say(text: str) -> None:
    """Prints one line of this program."""
    sys.stdout.write(f"{escape(text)}\n")
    sys.stdout.flush()


class Console:
    """One descriptor of this process. On a terminal, text is escaped; otherwise it is written unchanged."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._terminal = os.isatty(descriptor)
        self._line_open = False

    async def write(self, text: str) -> None:
        """Writes text as soon as the descriptor accepts it; raises `BrokenPipeError` when the reader is gone."""
        if not text:
            return
        self._line_open = not text.endswith("\n")
        shown = escape(text.replace("\r\n", "\n")) if self._terminal else text
        data = memoryview(shown.encode(errors="replace"))
        while data:
            await writable(self._descriptor)
            data = data[os.write(self._descriptor, data[:_PORTION]) :]

    async def line(self, text: str) -> None:
        """Writes a separate line; an open line before it is ended first."""
        await self.write(f"\n{text}\n" if self._line_open else f"{text}\n")

    async def note(self, text: str) -> None:
        """Writes a line of this program, always escaped, because it can contain text from the code."""
        await self.line(one_line(text))
