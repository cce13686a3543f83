"""Folders of this machine that are looked at again and again: if the kernel saw no change, nothing is read anew."""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from ..backends import libc
from ..backends.listing import Tree
from .trees import Observer, list_tree

_LOCAL = frozenset(("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs", "zfs"))
"""File systems that only this machine changes, so that its kernel sees every change."""
_EVENTS = 1 << 16
_UNFINISHED = 60.0
"""Seconds after which a change that is not finished never will be."""


class WatchedFolders:
    """Folders that are looked at for as long as the scope lasts."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for folder in self._folders.values():
            folder.close()

    def look(self, path: str, *, files: int, size: int) -> Tree:
        """What is below a folder, as `list_tree` has it; the same object as long as nothing changes.

        Two changes are noticed late: those of a program that writes to a file through its memory, when it lets go of
        the file; and those through another name of a file, elsewhere, that it got since the last look, at the next
        change. Call it in a worker thread.
        """
        return self._folders.setdefault(path, _Folder(path)).look(files, size)

    def left_over(self, path: str) -> Sequence[str]:
        """The files below a folder that servers left behind that were killed, when it was read last."""
        return self._folders[path].left_over if path in self._folders else ()


class _Folder(Observer):
    """One folder, with a watch on each folder below it while the kernel allows that."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._looking = threading.Lock()
        self._watch = -1
        self._identity = (0, 0)
        self._tree: Tree = {}
        self.left_over: list[str] = []
        self._size = 0

    def look(self, files: int, size: int) -> Tree:
        with self._looking:
            state = os.stat(self._path)
            if self._identity != (state.st_dev, state.st_ino) or not self._is_quiet():
                self.close()
                if _is_local(state.st_dev, os.path.realpath(self._path)):
                    with suppress(OSError):
                        self._watch = libc.inotify_init()
                self.left_over = []
                self._tree = list_tree(self._path, files=files, size=size, observer=self)
                self._size = sum(entry.stamp.size for entry in self._tree.values())
                self._identity = state.st_dev, state.st_ino
            if len(self._tree) > files or self._size > size:
                raise OverflowError
            return self._tree

    def enters(self, folder: int) -> None:
        if self._watch >= 0:
            try:
                libc.inotify_add_watch(self._watch, f"/proc/self/fd/{folder}", libc.IN_CHANGES)
            except OSError:  # there are more folders than may be watched
                self.close()

    def finds_temporary(self, path: str) -> None:
        with suppress(OSError):  # it was not left over
            if os.lstat(f"{self._path}/{path}").st_mtime < time.time() - _UNFINISHED:
                self.left_over.append(path)

    def cannot_watch(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch; the next look reads everything."""
        if self._watch >= 0:
            os.close(self._watch)
        self._watch, self._identity = -1, (0, 0)

    def _is_quiet(self) -> bool:
        try:
            return self._watch >= 0 and not os.read(self._watch, _EVENTS)
        except BlockingIOError:
            return True


def _is_local(device: int, path: str) -> bool:
    """Whether a folder is on such a file system, and nothing else is mounted below it."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            rows: Sequence[list[str]] = [line.replace(r"\040", "\0").split(" ") for line in file]
    except OSError:  # not Linux
        return False
    below = f"{path.rstrip('/')}/".replace(" ", "\0")
    if any(row[4].startswith(below) and row[4] != path for row in rows):
        return False
    return any(row[2] == number and row[row.index("-") + 1] in _LOCAL for row in rows)
