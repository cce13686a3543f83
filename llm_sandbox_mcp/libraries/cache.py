"""What is kept on this machine for the next installation, and within which bounds."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import downloads, keeping
from .environments import FOLDER, TOOLS

_MOST = {FOLDER: 20, TOOLS: 2}
"""How many are kept of each: an environment with pandas and matplotlib takes 350 MB, uv 37."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How much there is of something, and how much there may be."""

    folder: Path
    number: int
    most: int
    """How many there may be; 0 where only their bytes count."""
    most_bytes: int
    """0 where only their number counts."""

    def size(self) -> int:
        """Bytes of all files, which takes a while where there are many."""
        return sum(_files(self.folder))


def contents(cache: Path) -> list[Kept]:
    """What is kept below a folder."""
    folder = cache / downloads.FOLDER
    return [
        *(Kept(cache / name, len(keeping.kept(cache / name)), most, 0) for name, most in _MOST.items()),
        Kept(folder, len(keeping.kept(folder)), 0, downloads.LIMIT),
    ]


def prune(cache: Path) -> None:
    """Removes what nobody has used for long, and beyond its number what was used longest ago."""
    for name, most in _MOST.items():
        keeping.prune(cache / name, most)


def clear(cache: Path) -> None:
    """Removes everything that no live server uses."""
    for name in _MOST:
        keeping.prune(cache / name, 0)
    downloads.clear(cache / downloads.FOLDER)


def _files(folder: Path) -> Iterator[int]:
    """The size of each file below a folder, without those that are being written or removed."""
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
