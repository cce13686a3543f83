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
        try:
            # Exclusive, because processes that the code started write into the same folder.
            with open(os.path.join(os.environ["SANDBOX_FIGURES"], name), "xb") as file:
                file.write(data)
            return name
        except FileExistsError:
            continue
    raise AssertionError
