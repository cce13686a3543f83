"""Reads the variables of a saved session, which share a memo, also after some that cannot be read."""

from __future__ import annotations

import io
import pickle
from _signal import ITIMER_REAL, SIGALRM, setitimer, signal
from contextlib import contextmanager
from os import SEEK_CUR, lseek

_PATIENCE = 5.0
"""Seconds in which reading a variable must get on."""


class TooLong(BaseException):
    """Reading a variable does not get on."""


@contextmanager
def limit(position):
    """Ends what does not get on, by this function, which tells how far it is."""
    last = position()

    def check(number, frame):
        nonlocal last
        now = position()
        if now == last:
            raise TooLong
        last = now

    earlier = signal(SIGALRM, check)
    setitimer(ITIMER_REAL, _PATIENCE, _PATIENCE)
    try:
        yield
    finally:
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, earlier)


class Reader:
    """Reads one variable after the other."""

    def __init__(self, data, buffers, names: dict) -> None:
        self._data = data
        self._buffers = buffers
        self._names = names
        self._large: list = []
        self._missing: dict = {}
        self._unpickler = self._new(data)
        self._end = self._unpickler.load()[-1]
        """The last object of the last variable."""

    def read(self, position: int, size: int, large: list):
        """Reads the variable that is next; `large` says where its large parts are."""
        self._large = [*large]
        value, self._end = self._unpickler.load()
        if self._missing:
            from sandbox_state_remains import reaches

            other = reaches(value, self._missing, self._names)
            if other:
                raise pickle.UnpicklingError(f"it shares something with {other}, which is lost")
        return value

    def position(self) -> int:
        """How far it is; not by methods of the files, in one of which it may be."""
        return sum(lseek(file.fileno(), 0, SEEK_CUR) for file in (self._data, self._buffers))

    def skip(self, name: str, position: int, size: int, large: list, careful: bool) -> None:
        """Goes on after a variable that cannot be read, with what is left of it for others."""
        memo = self._unpickler.memo.copy()
        last = max(number for number, each in memo.items() if each is self._end)
        if self._data.tell() == position + size and last == max(memo):
            return  # it was read, and is lost because of another one
        known = {number: memo[number] for number in range(last + 1)}
        self._data.seek(position)
        content = self._data.read(size)
        remains = None
        if not careful:
            try:
                with limit(self.position):
                    remains = self._find_remains(content, {**known}, large, False)
            except BaseException:
                remains = None
        remains = remains or self._find_remains(content, known, large, True)
        self._missing.update((id(each), (each, name)) for each in remains.missing)
        self._unpickler = self._new(_Joined(_filling(len(remains.memo)), self._data))
        self._unpickler.known = remains.memo
        self._unpickler.load()

    def _new(self, file) -> _Unpickler:
        return _Unpickler(file, buffers=iter(self._next_large, None))

    def _find_remains(self, content: bytes, known: dict, large: list, careful: bool):
        from sandbox_state_remains import Remains

        self._large = [*large]
        remains = Remains(io.BytesIO(content), known, iter(self._next_large, None), careful)
        self._end = remains.load()[1]
        return remains

    def _next_large(self):
        position, size, is_constant = self._large.pop(0)
        content = bytearray(size)
        self._buffers.seek(position)
        self._buffers.readinto(content)
        return memoryview(content).toreadonly() if is_constant else content


class _Unpickler(pickle.Unpickler):
    """An unpickler that can be given a memo: there, its own attribute of that name does not work."""

    known: dict

    def persistent_load(self, number: int):
        """An object of the memo."""
        return self.known[number]


def _filling(count: int) -> bytes:
    """A pickle that fills a memo, from objects that `persistent_load` knows by number."""
    put = b"".join(
        pickle.BININT + number.to_bytes(4, "little") + pickle.BINPERSID + pickle.MEMOIZE + pickle.POP
        for number in range(count)
    )
    content = put + pickle.NONE + pickle.STOP
    return pickle.PROTO + b"\x05" + pickle.FRAME + len(content).to_bytes(8, "little") + content


class _Joined:
    """Some bytes, and then a file."""

    def __init__(self, first: bytes, file) -> None:
        self._first = io.BytesIO(first)
        self._file = file

    def read(self, size: int) -> bytes:
        return self._first.read(size) or self._file.read(size)

    def readline(self) -> bytes:
        return self._first.readline() or self._file.readline()
