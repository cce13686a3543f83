"""What pickles of a session are made of: the functions that an unpickler calls to make each part anew."""

from __future__ import annotations

import sys
from functools import lru_cache
from os import devnull
from types import CellType, CodeType, FunctionType

opening = None
"""The `Opening` that is under way: it knows the session, and the cells that were saved."""


def names() -> dict:
    """The names of the session."""
    return opening.session.names


def main():
    """The module `__main__` of the session."""
    return sys.modules["__main__"]


def module(name: str, others: tuple):
    """A module, and those below it that the code has imported as well."""
    for each in (name, *others):
        __import__(each)
    return sys.modules[name]


def closed_file(mode: str, buffering: int):
    """A file that is closed: nothing else is left of it."""
    file = open(devnull, mode, buffering)  # noqa: SIM115 - it is what is returned
    file.close()
    return file


def view(content) -> memoryview:
    """A view of bytes."""
    return memoryview(content)


def cached(function, parameters: dict):
    """A function with an empty cache of its results."""
    return lru_cache(**parameters)(function)


def cell() -> CellType:
    """An empty cell, for a variable that functions share."""
    return CellType()


class Unknown(Exception):
    """Code of another version of Python that could not be made anew."""


def code(file: str, name: str, line: int, variables: tuple, free: tuple, arguments: tuple):
    """The code of a function: of another version of Python, it is made anew from the source of its cell."""
    if opening.same_bytecode:
        return CodeType(*arguments)
    found = [
        each
        for each in opening.codes(file)
        if (each.co_name, each.co_firstlineno, each.co_freevars) == (name, line, free)
        and each.co_varnames[: len(variables)] == variables
    ]
    # The code inside of other code may be missing: some versions have none for a list comprehension.
    return found[0] if len(found) == 1 else Unknown(f"a function of Python {opening.version_then}")


def function(code, namespace: dict, cells: tuple | None) -> FunctionType:
    """A function that `fill` completes: it may be part of what it refers to."""
    if isinstance(code, Unknown):
        raise code
    namespace.setdefault("__builtins__", sys.modules["builtins"])
    return FunctionType(code, namespace, code.co_name, None, cells)


def fill(function: FunctionType, state: tuple) -> None:
    """Gives a function what belongs to it."""
    attributes, slots, used, contents = state
    function.__dict__.update(attributes)
    function.__globals__.update(used)
    for each, content in contents:
        each.cell_contents = content
    for name, value in slots.items():
        setattr(function, name, value)
