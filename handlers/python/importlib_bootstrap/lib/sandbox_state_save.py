"""The work of the child process that saves a session: `data`, `buffers` and `index` in the folder, and the report."""

from __future__ import annotations

import gc
import os
import pickle
import posix
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from contextlib import suppress

from sandbox_state_libraries import libraries
from sandbox_state_report import clean, reason, write_file, write_report
from sandbox_state_room import NoRoom, Output, Room
from sandbox_state_running import running

_OUT_OF_BAND = 64 << 10
"""From this size on, the content of an array is written as it is, without a copy."""
_OWN_CELL = "<cell 0>"
"""The server's own code, which calls this."""
_DEEPEST = 20_000
"""Like objects of a long chain; if the stack is too small for so many, it costs only the variable."""


class Saving:
    """One try to save all variables but those that are known as lost."""

    def __init__(self, session, folder: str, writer: int, replaced: list) -> None:
        gc.disable()  # no hook of an object that is collected runs here, and memory stays shared
        with suppress(OSError):
            write_file("/proc/self/oom_score_adj", b"1000")  # not the session, if memory runs out
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEPEST))
        self._session = session
        self._folder = folder
        self._writer = writer
        self._replaced = replaced
        room = Room(folder, session.start.environment)
        self._data, self._buffers = Output(f"{folder}/data", room), Output(f"{folder}/buffers", room)
        self._large: list = []
        from sandbox_state_pickler import SessionPickler

        self._pickler = SessionPickler(self._data, session, self._write_buffer)

    def run(self, order: list, lost: dict, hopeless: list, live: tuple) -> None:
        """Saves the variables of these names, and writes the report."""
        names, saved, losses = self._session.names, [], {}
        self._pickler.dump_anchors()
        self._data.flush()
        # What is defined comes first: it is then not lost with a value that cannot be opened.
        numbered = [(number, name) for number, name in enumerate(order) if name in names]
        for number, name in sorted(numbered, key=lambda each: _rank(names[each[1]])):
            kind = _kind(names[name])
            if name in lost:
                losses[name] = lost[name]
                continue
            if kind in hopeless:
                losses[name] = kind, "others of this type could not be saved"
                continue
            posix.write(self._writer, f"{clean(kind)}\t{number}\n".encode())
            position, large = self._data.size, self._buffers.size
            self._large = []
            holder = [names[name], []]  # the second list is the last thing that the memo has of the variable
            try:
                self._pickler.dump(holder)
                self._data.flush()
            except BaseException as error:
                losses[name] = kind, str(error) if isinstance(error, NoRoom) else reason(error)
                self._pickler.forget(holder)
                self._data.cut(position)
                self._buffers.cut(large)
                continue
            saved.append((name, kind, position, self._data.size - position, self._large))
        index = {"variables": saved, **self._surroundings()}
        write_file(f"{self._folder}/index", pickle.dumps(index, 4))
        lines = [(name, *losses[name]) for name in order if name in losses]
        lines += running(*live)
        write_report(self._folder, lines, self._notes(), len(saved))

    def _write_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Takes the content of a large array; true for others, which the pickle then contains."""
        try:
            content = buffer.raw()
        except BufferError:
            return True
        if content.nbytes < _OUT_OF_BAND:
            return True
        self._large.append((self._buffers.size, content.nbytes, content.readonly))
        self._buffers.write(content)
        self._buffers.flush()
        return False

    def _surroundings(self) -> dict:
        start = self._session.start
        environment, folder = dict(os.environ), ""
        with suppress(FileNotFoundError):  # it was removed
            folder = posix.getcwd()
        return {
            "version": sys.version_info[:2],
            "bytecode": MAGIC_NUMBER,
            "cells": {cell: "".join(entry[2]) for cell, entry in self._session.sources.items() if cell != _OWN_CELL},
            "folder": "" if folder == start.folder else folder,
            "set": {name: value for name, value in environment.items() if start.environment.get(name) != value},
            "removed": [name for name in start.environment if name not in environment],
            "path": _added(sys.path, start.path),
            "libraries": libraries(),
        }

    def _notes(self) -> list:
        notes = []
        if self._session.leaves:
            notes.append("what code left for the exit of its interpreter, such as an exit handler, is not saved")
        if self._replaced:
            notes.append(f"what code put in the place of builtins is not saved: {', '.join(self._replaced)}")
        return notes


def _rank(value: object) -> int:
    kind = type(value)
    return 0 if kind is type(sys) else 1 if issubclass(kind, (type, type(_rank))) else 2


def _kind(value: object) -> str:
    """The type of a value by name; no code of the type runs."""
    kind, parts = type(value), []
    for name in ("__module__", "__qualname__"):
        with suppress(AttributeError):  # a class may have no module
            parts.append(type.__dict__[name].__get__(kind))
    return ".".join(part for part in parts if isinstance(part, str) and part not in ("builtins", "__main__"))


def _added(path: list, start: list) -> tuple[list, list]:
    """The entries of a path that were put before the first one of the start, and those after it."""
    known = [at for at, entry in enumerate(path) if entry in start]
    first = known[0] if known else 0
    new = [(at, entry) for at, entry in enumerate(path) if type(entry) is str and entry not in start]
    return [entry for at, entry in new if at < first], [entry for at, entry in new if at >= first]
