"""Finds the files that a run created or changed, by comparing what was in a folder before and after it."""

from __future__ import annotations

import os
import time

ENTRY_LIMIT = 10_000
"""Entries one scan looks at, nearest to the top first."""
FILE_LIMIT = 200
"""Files that are named."""
_SKIPPED = frozenset(("node_modules", "__pycache__"))
# Time stamps of files come from a clock that ticks, on the slowest kernels, every 10 ms.
_TICK_NS = 10_000_000


class Scan:
    """What was in a folder at one moment: path -> (mtime, size, inode, ctime)."""

    def __init__(self, folder: str) -> None:
        self.started = time.time_ns()
        self.files: dict[str, tuple[int, int, int, int]] = {}
        self.complete = True
        folders = [(folder, "")]
        left = ENTRY_LIMIT
        for place, prefix in folders:  # grows while it is walked: breadth first
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        if not left:
                            self.complete = False
                            return
                        left -= 1
                        self._look_at(entry, prefix, folders)
            except OSError:
                continue  # gone or closed to us: nothing to report from there

    def _look_at(self, entry: os.DirEntry, prefix: str, folders: list[tuple[str, str]]) -> None:
        name = entry.name
        if name[0] == "." or name in _SKIPPED:
            return
        if entry.is_dir(follow_symlinks=False):
            folders.append((entry.path, f"{prefix}{name}/"))
        elif entry.is_file(follow_symlinks=False):
            found = entry.stat(follow_symlinks=False)
            self.files[prefix + name] = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns)


def changed(before: Scan, after: Scan) -> tuple[list[str], int]:
    """Names the files that differ, at most `FILE_LIMIT`, and counts the rest."""
    names = []
    for name, (mtime, size, inode, ctime) in after.files.items():
        known = before.files.get(name)
        if known is None:
            # A scan that stopped early has not seen everything that was there.
            if not before.complete and ctime < before.started - _TICK_NS:
                continue
        elif known[:3] == (mtime, size, inode):
            continue
        names.append(name)
    return _reported(names)


def listed(folder: str) -> list[str]:
    """The names in a folder."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def added(before: list[str], folder: str) -> list[str]:
    """Names the files that a folder has beyond earlier ones; asks nothing about those, for they may be many."""
    after = listed(folder)
    if after == before:
        return []
    known = set(before)
    new = [name for name in after if name not in known and name[0] != "." and _is_regular(os.path.join(folder, name))]
    return _reported(new)[0]


def _is_regular(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _reported(names: list[str]) -> tuple[list[str], int]:
    """At most `FILE_LIMIT` of the names that JSON can carry, and how many others there are."""
    # Shorter first, endings aside, keeps figure-10.png behind figure-9.html.
    fit = sorted(filter(_is_text, names), key=lambda name: (len(name.rpartition(".")[0] or name), name))
    return fit[:FILE_LIMIT], len(names) - len(fit[:FILE_LIMIT])


def _is_text(name: str) -> bool:
    try:
        name.encode()
        return True
    except UnicodeEncodeError:
        return False
