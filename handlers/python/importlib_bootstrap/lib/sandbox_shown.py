"""Writes figures that the code shows to `$SANDBOX_FIGURES`."""

from __future__ import annotations

import itertools
import os

_numbers = itertools.count(1)


def write(content, extension: str) -> str:
    """Writes one figure, bytes or text, under the next free number and returns its name."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    for number in _numbers:
        name = f"figure-{number}.{extension}"
        if _written(name, data):
            return name
    raise AssertionError


def write_beside(other: str, content: bytes, extension: str) -> str:
    """Writes another form of a figure under the same number, or the next free one, and returns its name."""
    name = f"{other.rpartition('.')[0]}.{extension}"
    return name if _written(name, content) else write(content, extension)


def _written(name: str, data) -> bool:
    try:
        # Exclusive, because processes that the code started write into the same folder.
        with open(os.path.join(os.environ["SANDBOX_FIGURES"], name), "xb") as file:
            file.write(data)
        return True
    except FileExistsError:
        return False
