"""Writes the parts of a saved session. If some can be known, they have their names from what they contain."""

from __future__ import annotations

import posix
from contextlib import suppress
from stat import S_ISREG

from sandbox_state_digest import Digest
from sandbox_state_room import write_all

_KNOWN_LIMIT = 1 << 20
"""Bytes of the list of known parts that are read: those of 30,000 parts."""
_LARGE = 1 << 20
"""From this size on, what a pickler writes is mostly an object of the session itself, of which there is no copy."""
_OWN_LIMIT = 1 << 20
"""Bytes that exist only for the part, from which on they are written to a file at once."""
_WITHOUT_ROOM = 256 << 10
"""Bytes of a part up to which no room is looked for."""


class Store:
    """The parts of one saved session, each with a number."""

    def __init__(self, folder: str, room, tell) -> None:
        self.folder = f"{folder}/parts"
        self.room = room
        self.tell = tell
        self.parts: list[tuple[str, int]] = []
        """The name and the size of each."""
        self._numbers: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        known = _read_known(folder)
        self._known = known or frozenset()
        self.names = known is not None
        """Whether names are digests: without a list of those that are known, nobody compares them."""

    def add(self, content: Content) -> int:
        """Adds a part, and writes it if it is not known; returns its number. It raises `NoRoom`."""
        name = content.name() if self.names else str(len(self.parts))
        try:
            if name not in self._numbers and name.encode() not in self._known:
                self._taken[name] = content.rename(f"{self.folder}/{name}")
        finally:
            content.drop()
        if name not in self._numbers:
            self._numbers[name] = len(self.parts)
            self.parts.append((name, content.size))
        return self._numbers[name]

    def cut(self, count: int) -> None:
        """Keeps only this many parts."""
        for name, _ in self.parts[count:]:
            del self._numbers[name]
            if name in self._taken:
                with suppress(FileNotFoundError):  # code has removed it
                    posix.unlink(f"{self.folder}/{name}")
                self.room.give(self._taken.pop(name))
        del self.parts[count:]


class Content:
    """What becomes a part: in memory, or in a file as soon as much of it exists only here."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._digest = Digest(store.tell) if store.names else None
        self._path = f"{store.folder}/.{id(self)}"
        self._descriptor = -1
        self._pieces: list = []
        self._taken = self.size = 0
        self.own = 0
        """Bytes that exist only here."""

    def write(self, content) -> int:
        """Takes bytes, without a copy."""
        size = memoryview(content).nbytes
        self._pieces.append(content)
        self.size += size
        if size < _LARGE:  # a larger one is not copied, so that it need not be written if it is known
            self.own += size
            if self.own > _OWN_LIMIT:
                self._digest_pieces()
                self._write_pieces()
        self._store.tell()
        return size

    def pieces(self) -> list:
        """All of it, if it is small."""
        return self._pieces

    def name(self) -> str:
        """The name of the whole; no more can be written then."""
        self._digest_pieces()
        assert self._digest is not None
        return self._digest.name()

    def rename(self, path: str) -> int:
        """Writes the rest, and gives the file its place; returns the room that it takes."""
        self._write_pieces()
        posix.rename(self._path, path)
        taken, self._taken = self._taken, 0
        return taken

    def drop(self) -> None:
        """Forgets what it has, and removes what is only for now."""
        self._pieces = []
        if self._descriptor >= 0:
            posix.close(self._descriptor)
            self._descriptor = -1
            with suppress(FileNotFoundError):  # it has its place
                posix.unlink(self._path)
        self._store.room.give(self._taken)
        self._taken = 0

    def _digest_pieces(self) -> None:
        for piece in self._pieces:
            if self._digest is not None:
                self._digest.update(piece)

    def _write_pieces(self) -> None:
        size = sum(memoryview(piece).nbytes for piece in self._pieces)
        if self._taken or size > _WITHOUT_ROOM:
            self._store.room.take(size)
            self._taken += size
        if self._descriptor < 0:
            self._descriptor = posix.open(self._path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC, 0o600)
        for piece in self._pieces:
            write_all(self._descriptor, piece, self._store.tell)
        self._pieces, self.own = [], 0


class Bundle:
    """Small contents together in one part: a file for each would take longer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._content = Content(store)
        self._places: list = []

    def add(self, content: Content) -> list:
        """Takes a content; returns its place, which is known only when the bundle is closed."""
        place = [-1, self._content.size, content.size]
        for piece in content.pieces():
            self._content.write(piece)
        self._places.append(place)
        return place

    def size(self) -> int:
        """How many bytes it has."""
        return self._content.size

    def close(self) -> None:
        """Makes a part of it, and begins another one."""
        if self._places:
            number = self._store.add(self._content)
            for place in self._places:
                place[0] = number
            self._content, self._places = Content(self._store), []


def _read_known(folder: str):
    """The names of the parts that need not be written, if there is a list; code can have left anything there."""
    content = b""
    try:
        descriptor = posix.open(f"{folder}/known", posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOFOLLOW)
        try:
            if S_ISREG(posix.fstat(descriptor).st_mode):
                content = posix.read(descriptor, _KNOWN_LIMIT)
        finally:
            posix.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError:
        pass
    return frozenset(content.split(b"\n"))
