"""What this command finds on its standard input: all of it, or nothing, at once, and without taking it from others."""

import fcntl
import os
import select
import stat
import sys
from contextlib import suppress

from ..backends.libc import tee
from ..base.errors import InvalidArgument

_MOST = 16 << 20
"""Bytes that are read; runs accept less."""


def piped() -> bytes:
    """The rest of a file, or of a pipe whose writers are gone; empty for anything else, such as a terminal.

    Whoever started this command may leave a pipe open that nobody writes to, or read from its input themselves, as the
    loop of a script does: nothing is waited for, and all stays there. Raises `InvalidArgument` if more is to come.
    """
    try:
        kind = os.fstat(0).st_mode
    except OSError:  # it is closed
        return b""
    if stat.S_ISREG(kind):
        with suppress(OSError):  # it is open only for writing
            return os.pread(0, _MOST, os.lseek(0, 0, os.SEEK_CUR))
    if not stat.S_ISFIFO(kind):
        return b""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    state = dict(poll.poll(0)).get(0, 0)
    if not state & select.POLLIN:
        return b""
    if state & select.POLLHUP and sys.platform == "linux":
        with suppress(OSError):
            return _copied()
    raise InvalidArgument("its end is not here yet", "give --stdin - to wait for it")


def _copied() -> bytes:
    """What is in the pipe. Another one, as large, gets the same, and is read."""
    ours, theirs = os.pipe()
    try:
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, fcntl.fcntl(0, fcntl.F_GETPIPE_SZ))
        return os.read(ours, tee(0, theirs, _MOST))
    finally:
        os.close(ours)
        os.close(theirs)
