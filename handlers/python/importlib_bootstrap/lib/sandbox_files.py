"""Finds the files that a run created or changed: compares the content of a folder before and after the run."""

from __future__ import annotations

import os
import time

ENTRY_LIMIT = 10_000
"""The most entries that one scan checks, those nearest to the top first."""
FILE_LIMIT = 200
"""The most files that are named."""
_SKIPPED = frozenset(("node_modules", "__pycache__"))
# Time stamps of files come from a clock that, on the slowest kernels, ticks only every 10 ms.
_TICK_NS = 10_000_000


class Scan:
    """The content of a folder at one moment: path -> (mtime, size, inode, ctime)."""

    def __init__(self, folder: str) -> None:
        self.started = time.time_ns()
        self.files: dict[str, tuple[int, int, int, int]] = {}
        self.complete = True
        folders = [(folder, "")]
        left = ENTRY_LIMIT
        for place, prefix in folders:  # grows during the loop: breadth first
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        if not left:
                            self.complete = False
                            return
                        left -= 1
                        self._check(entry, prefix, folders)
            except OSError:
                continue  # the folder is gone or not readable: nothing to report from it

    def _check(self, entry: os.DirEntry, prefix: str, folders: list[tuple[str, str]]) -> None:
        name = entry.name
        if name[0] == "." or name in _SKIPPED:
            return
        if entry.is_dir(follow_symlinks=False):
            folders.append((entry.path, f"{prefix}{name}/"))
        elif entry.is_file(follow_symlinks=False):
            found = entry.stat(follow_symlinks=False)
            self.files[prefix + name] = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns)


def changed(before: Scan, after: Scan) -> tuple[list[str], int]:
    """Returns the names of the files that differ, at most `FILE_LIMIT`, and the number of the others."""
    names = []
    for name, (mtime, size, inode, ctime) in after.files.items():
        known = before.files.get(name)
        if known is None:
            # An incomplete scan may not have seen this file although it existed.
            if not before.complete and ctime < before.started - _TICK_NS:
                continue
        elif known[:3] == (mtime, size, inode):
            continue
        names.append(name)
    return _reported(names)


def listed(folder: str) -> list[str]:
    """Lists the names in a folder; empty if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def added(before: list[str], folder: str) -> list[str]:
    """Returns the names of the files that are new in a folder; does not check the earlier files, which may be many."""
    after = listed(folder)
    if after == before:
        return []
    known = set(before)
    new = [name for name in after if name not in known and name[0] != "." and _is_regular(os.path.join(folder, name))]
    return _reported(new)[0]


def _is_regular(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _reported(names: list[str]) -> tuple[list[str], int]:
    """Returns at most `FILE_LIMIT` of the names that JSON can represent, and the number of the others."""
    # Sorted by length without the extension first, so that figure-10.png comes after figure-9.html.
    fit = sorted(filter(_is_text, names), key=lambda name: (len(name.rpartition(".")[0] or name), name))
    return fit[:FILE_LIMIT], len(names) - len(fit[:FILE_LIMIT])


def _is_text(name: str) -> bool:
    try:
        name.encode()
        return True
    except UnicodeEncodeError:
        return False
