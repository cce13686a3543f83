"""Processes that are started in a terminal, and a person's keys."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .command import environment

CTRL_C, CTRL_D = b"\x03", b"\x04"
_BEGIN = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
"""Makes the standard input the terminal of the process, so that keys such as Ctrl-C send it signals."""


@contextmanager
def in_a_terminal(
    argv: Sequence[str], output: int | None = None, cwd: Path | None = None
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A process, and the end of its terminal with the keyboard and the screen; its output can be elsewhere, in pipes."""
    keyboard, end = os.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", _BEGIN, *argv],
            stdin=end,
            stdout=output or end,
            stderr=output or end,
            cwd=cwd,
            env=environment(),
        ) as process:
            try:
                yield keyboard, process
            finally:
                process.kill()
    finally:
        os.close(keyboard)
        os.close(end)


def shown(keyboard: int, pattern: bytes) -> "re.Match[bytes]":
    """Reads the screen until the pattern is on it."""
    screen = b""
    while not (found := re.search(pattern, screen)):
        screen += os.read(keyboard, 4096)
    return found
