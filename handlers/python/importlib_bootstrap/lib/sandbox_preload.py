"""Imports a module before any code asks for it, so that the code's own import of it costs nothing."""

from __future__ import annotations

import gc
import importlib
import os
import sys

from sandbox_channel import quote

_MISSED = 200
"""The most modules that the report names."""


def preload(name: str) -> str:
    """Imports a module, and returns what the report says of it; raises the errors of its code."""
    missed = _Missed()
    before = _own_memory()
    sys.meta_path.append(missed)
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return '{"missing":true}'
        raise
    finally:
        sys.meta_path.remove(missed)
    _end_threads()
    gc.collect()
    gc.freeze()  # no later collection, such as that at the end of a run, looks at what modules consist of
    names = ",".join(map(quote, sorted(missed.names)[:_MISSED]))
    return f'{{"memory":{max(0, _own_memory() - before)},"missed":[{names}]}}'


class _Missed:
    """The last finder: it is asked only for modules that no other one knows, such as libraries that are optional."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name, path=None, target=None) -> None:
        if path is None:
            self.names.add(name)


def _own_memory() -> int:
    """The bytes that this process shares with no file."""
    with open("/proc/self/statm") as file:
        resident, shared = map(int, file.read().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _end_threads() -> None:
    """Ends the threads of libraries that calculate: they end before a fork, and start again when they are needed.

    Code that forks without using them is then not told that it has threads.
    """
    try:
        child = os.fork()
    except OSError:
        return
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
