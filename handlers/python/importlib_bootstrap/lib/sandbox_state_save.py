"""The work of the child process that saves a session: `parts` and `index` in the folder, and the report."""

from __future__ import annotations

import gc
import os
import pickle
import posix
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from binascii import crc32
from contextlib import suppress

from sandbox_state_libraries import libraries
from sandbox_state_report import clean, reason, write_file, write_report
from sandbox_state_room import NoRoom, Room
from sandbox_state_running import running
from sandbox_state_sharing import Sharing
from sandbox_state_store import Bundle, Content, Store

_OUT_OF_BAND = 64 << 10
"""From this size on, the content of an array is written as it is, without a copy."""
_SMALL = 4 << 10
"""Bytes of a pickle below which it is not a part by itself."""
_BUNDLE, _BUNDLED = 8 << 10, 8
"""Bytes of small pickles that are a part together, at least, and how many more come to them on average."""
_LONG, _LOOKED = 256 << 10, 4 << 20
"""Bytes of a pickle, and of all, from which on what they share is not looked for: that takes longer than to pickle."""
_CELLS = 64 << 10
"""Characters of the source of cells from which on these are a part."""
_OWN_CELL = "<cell 0>"
"""The server's own code, which calls this."""
_DEEPEST = 20_000
"""Like objects of a long chain; if the stack is too small for so many, it costs only the variable."""


class _Variable:
    """A variable that is being saved."""

    def __init__(self, number: int, name: str, kind: str, value: object) -> None:
        self.number = number
        self.name = name
        self.kind = kind
        self.holder = [value, []]  # the second list is the last thing that the memo has of the variable
        self.is_long = False
        self.known: dict
        """What the pickler knew after it, if it was alone."""
        self.content: Content
        self.buffers: list = []


class Doing:
    """Tells the session's process what is done, also while it takes long: what does not get on is given up."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._line = ""
        self._count = 0

    def begin(self, variable: _Variable) -> None:
        """Names the variable that comes next."""
        self._line = f"{clean(variable.kind)}\t{variable.number}\n"
        self.tell()

    def tell(self) -> None:
        """Tells that it gets on."""
        self._count += 1
        posix.pwrite(self._file, f"{self._count}\t{self._line}".encode(), 0)


class _Long(Exception):
    """A pickle is too long to look for what it shares."""


class Saving:
    """One try to save all variables but those that are known as lost."""

    def __init__(self, session, folder: str, doing: int, replaced: list) -> None:
        gc.disable()  # no hook of an object that is collected runs here, and memory stays shared
        with suppress(OSError):
            write_file("/proc/self/oom_score_adj", b"1000")  # not the session, if memory runs out
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEPEST))
        self._session = session
        self._folder = folder
        self._doing = Doing(doing)
        self._replaced = replaced
        self._store = Store(folder, Room(folder, session.start.environment), self._doing.tell)
        self._bundle = Bundle(self._store)
        self._pickled = Content(self._store)
        self._buffers: list = []
        self._most, self._left = sys.maxsize, _LOOKED
        self._sharing: Sharing | None = None
        """What the pickles are not to meet, while that matters."""
        self._met: set[int] = set()
        """The variables that they have met."""
        from sandbox_state_pickler import SessionPickler

        self._pickler = SessionPickler(self, session, self._take_buffer)
        self._losses: dict[str, tuple[str, str]] = {}

    def run(self, order: list, lost: dict, hopeless: list, live: tuple) -> None:
        """Saves the variables of these names, and writes the report."""
        self._pickler.dump_anchors()
        anchors = b"".join(self._pickled.pieces())
        sharing, looked, long = Sharing(self._pickler.is_anchor), [], []
        for variable in self._variables(order, lost, hopeless):
            self._doing.begin(variable)
            self._pickler.begin()
            # Alone at first: what the pickler knows then shows what shares something.
            if self._pickle(variable, most=min(_LONG, self._left)):
                variable.known = self._pickler.known()
                sharing.add(variable.known)
                looked.append(variable)
                self._left -= variable.content.own
            elif variable.is_long:
                long.append(variable)
        groups = self._save_long(long, looked, sharing) if long else []
        groups += [self._save([looked[each] for each in group]) for group in sharing.groups()]
        self._bundle.close()
        index = {"groups": [group for group in groups if group[1]], "anchors": anchors, **self._surroundings()}
        index["parts"] = self._store.parts
        write_file(f"{self._folder}/index", pickle.dumps(index, 4))
        lines = [(name, *self._losses[name]) for name in order if name in self._losses]
        lines += running(*live)
        write_report(self._folder, lines, self._notes(), sum(len(saved) for _, saved in groups))

    def _variables(self, order: list, lost: dict, hopeless: list) -> list:
        """The variables that can be tried; those that cannot are losses."""
        names, found = self._session.names, []
        numbered = [(number, name) for number, name in enumerate(order) if name in names]
        # What is defined comes first: it is then not lost with a value that cannot be opened.
        for number, name in sorted(numbered, key=lambda each: _rank(names[each[1]])):
            kind = _kind(names[name])
            if name in lost:
                self._losses[name] = lost[name]
            elif kind in hopeless:
                self._losses[name] = kind, "others of this type could not be saved"
            else:
                found.append(_Variable(number, name, kind, names[name]))
        return found

    def _pickle(self, variable: _Variable, most: int = sys.maxsize) -> bool:
        """Pickles a variable; false if it is lost, or takes more bytes."""
        self._pickled, self._buffers, self._most = Content(self._store), [], most
        variable.holder = [variable.holder[0], []]  # the pickler may know the earlier one
        try:
            self._pickler.dump(variable.holder)
        except BaseException as error:
            variable.is_long = isinstance(error, _Long)
            if variable.is_long:
                self._pickled.drop()
            else:
                self._lose(variable, error)
            return False
        variable.content, variable.buffers = self._pickled, self._buffers
        return True

    def write(self, content) -> int:
        """Takes what the pickler writes."""
        size = self._pickled.write(content)
        if self._pickled.own > self._most:
            raise _Long
        if self._sharing is not None and type(content) is bytes:
            self._met |= self._sharing.marked(content)
        return size

    def _save_long(self, long: list, looked: list, sharing: Sharing) -> list:
        """Saves variables with long pickles, all together: to find out what they share would take too long.

        Those of the others that share something with one of them are taken out of `sharing`.
        """
        count, saved = len(self._store.parts), []
        self._sharing = sharing
        unused = self._pickler.begin(sharing.marks())
        for variable in long:
            self._doing.begin(variable)
            if self._pickle(variable):
                if self._met:
                    variable.content.drop()
                else:
                    self._store_one(variable, saved, alone=True)  # nothing can be taken out of a bundle
        self._sharing = None
        if not self._met:
            return [(unused, saved)]
        self._store.cut(count)
        met = [looked[number] for number in sharing.take(self._met)]
        return [self._save(met + [variable for variable in long if variable.name not in self._losses])]

    def _save(self, group: list) -> tuple[int, list]:
        """Saves variables that share something: after the first, they are pickled once more."""
        saved = []
        for variable in group:
            self._doing.begin(variable)
            if variable is not group[0]:
                variable.content.drop()
                if not self._pickle(variable):
                    continue
            elif len(group) > 1:
                self._pickler.go_on(variable.known)
            self._store_one(variable, saved)
        return 0, saved

    def _store_one(self, variable: _Variable, saved: list, alone: bool = False) -> None:
        count = len(self._store.parts)
        try:
            large = [self._save_buffer(buffer) for buffer in variable.buffers]
            small = variable.content.size < _SMALL and not alone
            place = None if small else [self._store.add(variable.content), 0, variable.content.size]
        except Exception as error:
            self._store.cut(count)
            self._lose(variable, error)
            return
        saved.append((variable.name, variable.kind, place or self._bundle.add(variable.content), large))
        # A bundle ends at certain names, so that a new variable changes hardly any other one.
        name = variable.name.encode("utf-8", "replace")
        if small and self._bundle.size() > _BUNDLE and crc32(name) % _BUNDLED == 0:
            self._bundle.close()

    def _lose(self, variable: _Variable, error: BaseException) -> None:
        """Names a variable as lost, and forgets what the pickler has of it."""
        self._losses[variable.name] = variable.kind, str(error) if isinstance(error, NoRoom) else reason(error)
        self._pickler.forget(variable.holder)
        self._pickled.drop()

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Takes the content of a large array; true for others, which the pickle then contains."""
        try:
            content = buffer.raw()
        except BufferError:
            return True
        if content.nbytes < _OUT_OF_BAND:
            return True
        self._buffers.append(content)
        return False

    def _save_buffer(self, buffer: memoryview) -> tuple[int, bool]:
        content = Content(self._store)
        content.write(buffer)
        return self._store.add(content), buffer.readonly

    def _save_cells(self) -> tuple[list, dict]:
        """The source of all cells: parts with the earlier ones, which do not change any more, and the last ones."""
        parts, last, size = [], {}, 0
        for cell, (_, _, lines, _) in self._session.sources.items():
            if cell == _OWN_CELL:
                continue
            last[cell] = "".join(lines)
            size += len(last[cell])
            if size >= _CELLS:
                content = Content(self._store)
                content.write(pickle.dumps(last, 4))
                parts.append(self._store.add(content))
                last, size = {}, 0
        return parts, last

    def _surroundings(self) -> dict:
        start = self._session.start
        cell_parts, cells = self._save_cells()
        environment, folder = dict(os.environ), ""
        with suppress(FileNotFoundError):  # it was removed
            folder = posix.getcwd()
        return {
            "version": sys.version_info[:2],
            "bytecode": MAGIC_NUMBER,
            "cell_parts": cell_parts,
            "cells": cells,
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
