"""Finds the cell that defines a class, loaded when the code imports `inspect`."""

from __future__ import annotations

import functools
import re


def find_classes(inspect, sources: dict) -> None:
    """Makes `inspect.getfile` know the classes of cells: for others it takes the file of their module."""
    original = inspect.getfile

    @functools.wraps(original)
    def getfile(thing):
        cell = _cell_of(thing, sources) if isinstance(thing, type) and thing.__module__ == "__main__" else None
        return cell or original(thing)

    inspect.getfile = getfile


def _cell_of(kind: type, sources: dict) -> str | None:
    """Returns the cell with the class's own methods or, if it has none, the last one that defines such a class."""
    for member in vars(kind).values():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        code = getattr(function, "__code__", None)
        if code and code.co_filename in sources and function.__qualname__.rpartition(".")[0] == kind.__qualname__:
            return code.co_filename
    statement = re.compile(rf"\s*class\s+{kind.__name__}\b")
    return next((cell for cell in reversed([*sources]) if any(map(statement.match, sources[cell][2]))), None)
