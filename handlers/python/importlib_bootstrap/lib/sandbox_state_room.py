"""Writes to files of the sandbox only while there is room: they may be in memory, which the session needs itself."""

from __future__ import annotations

import posix
from contextlib import suppress
from errno import EDQUOT, ENOSPC

_RESERVE = 0.1
"""The part of the memory that is left free."""
_AT_ONCE = 256 << 10
"""Bytes up to which what is written is collected, and for which no room is looked for."""


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


class Output:
    """A file that is written from its start."""

    def __init__(self, path: str, room: Room) -> None:
        self._descriptor = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC, 0o600)
        self._room = room
        self._pending = bytearray()
        self._taken = 0
        self.size = 0
        """How many bytes it has, with those that wait to be written."""

    def write(self, content) -> int:
        """Writes bytes, later if they are few."""
        size = memoryview(content).nbytes
        if self.size + size > _AT_ONCE:
            needed = self.size + size - self._taken
            if needed > 0:
                self._room.take(needed)
                self._taken += needed
        if len(self._pending) + size > _AT_ONCE:
            self.flush()
            self._write(content)
        else:
            self._pending += content
        self.size += size
        return size

    def flush(self) -> None:
        """Writes what waits."""
        self._write(self._pending)
        self._pending = bytearray()

    def cut(self, size: int) -> None:
        """Cuts the file to an earlier size."""
        self._pending = bytearray()
        posix.ftruncate(self._descriptor, size)
        posix.lseek(self._descriptor, size, 0)
        if self._taken > size:
            self._room.give(self._taken - size)
            self._taken = size
        self.size = size

    def _write(self, content) -> None:
        left = memoryview(content).cast("B") if len(content) else b""
        total = len(left)
        try:
            while left:
                left = left[posix.write(self._descriptor, left) :]
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
