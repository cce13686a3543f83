"""Writing to the user's console, without blocking the event loop and without terminal escape sequences from code."""

import os
import sys
from collections.abc import Sequence

from ..aio.fds import writable
from ..base.text import escape, one_line

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


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a header line; each column is as wide as its widest cell."""
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
