"""How far libraries are that are being prepared: by what uv says, and by how many packages are in place."""

import math
import re
import time
from collections.abc import Callable

_RESOLVED = re.compile(r"Resolved (\d+) packages?")
_DOWNLOADING = re.compile(r"Downloading (\S+) \(([\d.]+)([KMG])iB\)")
_DOWNLOADED = re.compile(r"Downloaded (\S+)")
_PREPARED = re.compile(r"Prepared \d+ packages?")
_IN_PLACE = re.compile(r"(\d+) packages are in place|Installed (\d+) packages?")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DOWNLOADS = 2 / 3
"""The part of the time that downloads take, if there are any that uv finds worth a line."""
_SURE = 0.05
"""The part that must be done for an estimate of the rest."""


def in_place(packages: int) -> str:
    """The line for packages that are in place, which uv tells only when all are."""
    return f"{packages} packages are in place"


class Progress:
    """Takes the lines of one build."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`title` is the name of the language; `clock` returns seconds."""
        self._title = title
        self._clock = clock
        self._start = clock()
        self._packages = 0
        self._in_place = 0
        self._sizes: dict[str, float] = {}
        self._missing: set[str] = set()
        self.share = 0.0
        """The part that is done, from 0 to 1; it never falls, though uv tells of some downloads late."""

    def take(self, line: str) -> None:
        """Takes one line; one that says nothing about how far it is changes nothing."""
        if found := _RESOLVED.match(line):
            self._packages = int(found[1])
        elif found := _DOWNLOADING.match(line):
            self._sizes[found[1]] = float(found[2]) * _UNITS[found[3]]
            self._missing.add(found[1])
        elif found := _DOWNLOADED.match(line):
            self._missing.discard(found[1])
        elif _PREPARED.match(line):
            self._missing.clear()
        elif found := _IN_PLACE.match(line):
            self._in_place = int(found[1] or found[2])
        self.share = max(self.share, self._done())

    def __str__(self) -> str:
        words, share = f"preparing {self._title}'s libraries", self.share
        if not share:
            return words
        words += f", {min(99, int(share * 100))} %"
        left = (self._clock() - self._start) * (1 - share) / share
        if share < _SURE or share == 1:
            return words
        return f"{words}, about " + (f"{math.ceil(left / 5) * 5} s more" if left <= 60 else f"{left / 60:.0f} min more")

    def _done(self) -> float:
        placed = min(1.0, self._in_place / self._packages) if self._packages else 0.0
        if not (total := sum(self._sizes.values())):
            return placed
        left = sum(self._sizes[name] for name in self._missing)
        return _DOWNLOADS * (1 - left / total) + (1 - _DOWNLOADS) * placed
