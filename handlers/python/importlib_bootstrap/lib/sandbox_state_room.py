"""Writes to files of the sandbox only while there is room: they may be in memory, which the session needs itself."""

from __future__ import annotations

import posix
from contextlib import suppress
from errno import EDQUOT, ENOSPC

_RESERVE = 0.1
"""The part of the memory that is left free."""
_AT_ONCE = 16 << 20
"""Bytes that are written before it is told that it gets on."""


class NoRoom(Exception):
    """A variable does not fit."""


class Room:
    """What the files of a folder may take, found when it first matters."""

    def __init__(self, folder: str, environment: dict) -> None:
        self._folder = folder
        self._memory = environment.get("SANDBOX_MEMORY", "")
        self._free = -1

    def take(self, size: int) -> None:
        """Takes room; raises `NoRoom` if there is not enough."""
        if self._free < 0:
            self._free = self._find()
        if size > self._free:
            raise NoRoom(f"no room in the sandbox to save {max(1, size >> 20)} MB")
        self._free -= size

    def give(self, size: int) -> None:
        """Gives back what was taken."""
        self._free += size

    def _find(self) -> int:
        disk = posix.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if self._memory.isdecimal():
            memory = int(self._memory)
            free = min(free, int(memory * (1 - _RESERVE)) - _resident() - _files_in_memory())
        return max(0, free)


def write_all(descriptor: int, content, tell) -> None:
    """Writes bytes, and calls `tell` while it gets on; raises `NoRoom` if the disk is full."""
    left = memoryview(content).cast("B")
    total = len(left)
    try:
        while left:
            left = left[posix.write(descriptor, left[:_AT_ONCE]) :]
            tell()
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT):
            raise
        raise NoRoom(f"no room in the sandbox to save {max(1, total >> 20)} MB") from None


def _resident() -> int:
    """The memory of all processes that this one can see, but for itself: it shares its own with its parent."""
    pages = 0
    for entry in posix.listdir("/proc"):
        if entry.isdecimal() and int(entry) != posix.getpid():
            with suppress(OSError), open(f"/proc/{entry}/statm") as file:
                _, resident, shared, *_ = map(int, file.read().split())
                pages += resident - shared
    return pages * posix.sysconf("SC_PAGE_SIZE")


def _files_in_memory() -> int:
    """The bytes of files that are in memory."""
    used = {}
    with open("/proc/self/mounts") as file:
        mounts = [line.split() for line in file]
    for _, place, kind, options, *_ in mounts:
        if kind == "tmpfs" and "rw" in options.split(","):
            with suppress(OSError):
                disk = posix.statvfs(place)
                used[posix.stat(place).st_dev] = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    return sum(used.values())
