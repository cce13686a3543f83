"""Opens the variables that were saved in a folder, one after the other."""

from __future__ import annotations

import gc
import os
import pickle
import sys
from _ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from _frozen_importlib_external import MAGIC_NUMBER
from contextlib import contextmanager, suppress
from pickle import UnpicklingError

import sandbox_state_parts as parts
from sandbox_state_reader import Reader, TooLong, limit
from sandbox_state_report import clean, reason, write_file, write_report
from sandbox_state_stored import Stored


class Opening:
    """One try to open all variables."""

    def __init__(self, session, folder: str) -> None:
        self.session = session
        self._folder = folder
        with open(f"{folder}/index", "rb") as file:
            self._index = pickle.load(file)
        self._stored = Stored(folder, self._index["parts"])
        self._notes: list = []
        self._cells = self._find_cells()
        self.same_bytecode = self._index["bytecode"] == MAGIC_NUMBER
        self.version_then = _dotted(self._index["version"])
        self._codes: dict[str, list] = {}
        self._lost: list = []
        self._doing = os.open(f"{folder}/opening", os.O_RDWR | os.O_CREAT, 0o600)
        self._deadly = self._find_deadly()
        with suppress(FileNotFoundError):
            os.unlink(f"{folder}/report")

    def run(self) -> None:
        """Opens them, and writes the report."""
        parts.opening = self
        collects = gc.isenabled()
        gc.disable()  # it would look again and again at all that is new, and nothing of that is garbage
        with _silence():
            self._restore_surroundings()
            kept = self._open_all()
        if collects:
            gc.enable()
        os.close(self._doing)
        os.unlink(f"{self._folder}/opening")
        self._compare()
        parts.opening = None
        write_report(self._folder, self._lost, self._notes, kept)

    def codes(self, file: str) -> list:
        """All code of a saved cell, compiled by this version of Python."""
        if file not in self._codes:
            found = self._codes[file] = []
            if file in self._cells:
                flags = PyCF_ALLOW_TOP_LEVEL_AWAIT
                found.append(compile(self._cells[file], file, "exec", flags, dont_inherit=True))
                for code in found:  # grows during the loop
                    found += [each for each in code.co_consts if isinstance(each, type(code))]
        return self._codes[file]

    def _find_cells(self) -> dict:
        """The source of all cells."""
        found: dict[str, str] = {}
        for number in self._index["cell_parts"]:
            try:
                found.update(pickle.loads(self._stored.view(number)))
            except UnpicklingError as error:
                self._notes.append(f"the source of some cells is not here: {error}")
        return {**found, **self._index["cells"]}

    def _find_deadly(self) -> list:
        """The variables that ended the interpreter in an earlier try."""
        path = f"{self._folder}/deadly"
        names = []
        with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            names = file.read().splitlines()
        last = os.pread(self._doing, 1 << 12, 0).decode()
        if last and last not in names:
            names.append(last)
            write_file(path, "".join(f"{name}\n" for name in names).encode())
        return names

    def _open_all(self) -> int:
        kept, names = 0, self.session.names
        for unused, group in self._index["groups"]:
            try:
                found = [(self._content(*place), name, kind, large) for name, kind, place, large in group]
            except UnpicklingError as error:
                # Without one of them, what the others have of it cannot be found.
                self._lost += [(name, kind, str(error)) for name, kind, *_ in group]
                continue
            reader = Reader(self._stored, self._index["anchors"], unused, names)
            for each in found:
                kept += self._open_one(reader, *each)
        return kept

    def _content(self, number: int, start: int, size: int) -> memoryview:
        return self._stored.view(number)[start : start + size]

    def _open_one(self, reader: Reader, content: memoryview, name: str, kind: str, large: list) -> bool:
        shown = clean(name)
        if shown in self._deadly:
            self._lost.append((name, kind, "opening it ended the interpreter"))
            reader.skip(name, content, large, careful=True)
            return False
        os.ftruncate(self._doing, 0)
        os.pwrite(self._doing, shown.encode(), 0)
        try:
            with limit(reader.position):
                self.session.names[name] = reader.read(content, large)
            return True
        except BaseException as error:
            why = "opening it takes too long" if isinstance(error, TooLong) else reason(error)
            self._lost.append((name, kind, why))
            reader.skip(name, content, large, careful=isinstance(error, TooLong))
            return False

    def _restore_surroundings(self) -> None:
        index = self._index
        earlier = {}
        for cell, text in self._cells.items():
            lines = [f"{line}\n" for line in text.split("\n")[:-1]]
            earlier[cell] = (len(text), None, lines, cell)
        sources = self.session.sources
        current = {**sources}
        sources.clear()
        sources.update({**earlier, **current})
        if "linecache" in sys.modules:
            self.session.fill_linecache(sys.modules["linecache"])
        os.environ.update(index["set"])
        for name in index["removed"]:
            os.environ.pop(name, None)
        before, after = ([entry for entry in entries if entry not in sys.path] for entries in index["path"])
        sys.path[:] = [*before, *sys.path, *after]
        if index["folder"]:
            try:
                os.chdir(index["folder"])
            except OSError as error:
                self._notes.append(f"the working directory {index['folder']} is not here: {error.strerror}")

    def _compare(self) -> None:
        now = _dotted(sys.version_info[:2])
        if now != self.version_then:
            self._notes.append(f"saved by Python {self.version_then}, opened by {now}")
        from sandbox_state_libraries import libraries

        saved = self._index["libraries"]
        for name, version in libraries().items():
            if saved.get(name, version) != version:
                self._notes.append(f"{name} is {version} now; the session was saved with {saved[name]}")


@contextmanager
def _silence():
    """Lets nothing be printed."""
    null = os.open(os.devnull, os.O_RDWR)
    streams = sys.stdout, sys.stderr
    kept = []
    for number, stream in enumerate(streams, 1):
        stream.flush()
        kept.append(os.dup(number))
        os.dup2(null, number)
    try:
        yield
    finally:
        for number, stream in enumerate(streams, 1):
            stream.flush()
            os.dup2(kept[number - 1], number)
            os.close(kept[number - 1])
        os.close(null)


def _dotted(version: tuple) -> str:
    return ".".join(map(str, version))
