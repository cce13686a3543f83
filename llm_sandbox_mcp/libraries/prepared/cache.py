"""The files that are kept on this machine for later installations, and their limits."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..installed import downloads
from . import keeping
from .environments import FOLDER, TOOLS

_MOST = {FOLDER: 20, TOOLS: 2}
"""How many of each are kept: Python's default environment takes 480 MB, uv takes 37 MB."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder, how much it contains, and how much it can contain."""

    folder: Path
    number: int
    most: int
    """The maximum number; 0 if only bytes are limited."""
    most_bytes: int
    """The maximum bytes; 0 if only the number is limited."""

    def size(self) -> int:
        """Bytes of all files; this takes a while if there are many."""
        return sum(_files(self.folder))


def contents(cache: Path) -> list[Kept]:
    """The folders that are kept below the cache."""
    folder = cache / downloads.FOLDER
    return [
        *(Kept(cache / name, len(keeping.kept(cache / name)), most, 0) for name, most in _MOST.items()),
        Kept(folder, downloads.count(folder), 0, downloads.LIMIT),
    ]


def prune(cache: Path) -> None:
    """Removes what was not used for a long time, and the least recently used ones above the maximum number."""
    for name, most in _MOST.items():
        keeping.prune(cache / name, most)


def clear(cache: Path) -> None:
    """Removes everything that no live server uses."""
    for name in _MOST:
        keeping.prune(cache / name, 0)
    downloads.clear(cache / downloads.FOLDER)


def _files(folder: Path) -> Iterator[int]:
    """The size of each file below a folder; files that disappear meanwhile are left out."""
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
