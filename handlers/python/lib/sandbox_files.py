"""Finds the files that a run created or changed, by comparing two scans of a folder."""

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
    names, omitted = [], 0
    for name, (mtime, size, inode, ctime) in after.files.items():
        known = before.files.get(name)
        if known is None:
            # A scan that stopped early has not seen everything that was there.
            if not before.complete and ctime < before.started - _TICK_NS:
                continue
        elif known[:3] == (mtime, size, inode):
            continue
        try:
            name.encode()
        except UnicodeEncodeError:
            omitted += 1  # no JSON can carry this name
        else:
            names.append(name)
    # Shorter first, endings aside, keeps figure-10.png behind figure-9.html.
    names.sort(key=lambda name: (len(name.rpartition(".")[0] or name), name))
    return names[:FILE_LIMIT], omitted + len(names[FILE_LIMIT:])
