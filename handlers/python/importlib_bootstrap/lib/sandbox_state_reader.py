"""Reads the variables of a saved session, which share a memo, also after some that cannot be read."""

from __future__ import annotations

import io
import pickle
from _signal import ITIMER_REAL, SIGALRM, setitimer, signal
from contextlib import contextmanager

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
    """Reads one variable after the other, of those that share something."""

    def __init__(self, stored, anchors: bytes, unused: int, names: dict) -> None:
        self._stored = stored
        self._names = names
        self._large: list = []
        self._missing: dict = {}
        self._source = _Source()
        self._source.begin(memoryview(anchors))
        self._unpickler = self._new()
        self._end = self._unpickler.load()[-1]
        """The last object of the last variable."""
        if unused:
            self._source.begin(memoryview(_framed(pickle.NONE + pickle.MEMOIZE * unused + pickle.STOP)))
            self._end = self._unpickler.load()

    def read(self, content: memoryview, large: list):
        """Reads the variable that is next; `large` says in which parts its large contents are."""
        self._large = [*large]
        self._source.begin(content)
        value, self._end = self._unpickler.load()
        if self._missing:
            from sandbox_state_remains import reaches

            other = reaches(value, self._missing, self._names)
            if other:
                raise pickle.UnpicklingError(f"it shares something with {other}, which is lost")
        return value

    def position(self) -> int:
        """How far it is."""
        return self._source.moved + self._stored.moved

    def skip(self, name: str, content: memoryview, large: list, careful: bool) -> None:
        """Goes on after a variable that cannot be read, with what is left of it for others."""
        memo = self._unpickler.memo.copy()
        last = max(number for number, each in memo.items() if each is self._end)
        if self._source.is_read(content) and last == max(memo):
            return  # it was read, and is lost because of another one
        known = {number: memo[number] for number in range(last + 1)}
        remains = None
        if not careful:
            try:
                with limit(self.position):
                    remains = self._find_remains(content, {**known}, large, False)
            except BaseException:
                remains = None
        remains = remains or self._find_remains(content, known, large, True)
        self._missing.update((id(each), (each, name)) for each in remains.missing)
        self._unpickler = self._new()
        self._unpickler.known = remains.memo
        self._source.begin(memoryview(_filling(len(remains.memo))))
        self._unpickler.load()

    def _new(self) -> _Unpickler:
        return _Unpickler(self._source, buffers=iter(self._next_large, None))

    def _find_remains(self, content: memoryview, known: dict, large: list, careful: bool):
        from sandbox_state_remains import Remains

        self._large = [*large]
        remains = Remains(io.BytesIO(content), known, iter(self._next_large, None), careful)
        self._end = remains.load()[1]
        return remains

    def _next_large(self):
        number, is_constant = self._large.pop(0)
        content = self._stored.load(number)
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
    return _framed(put + pickle.NONE + pickle.STOP)


def _framed(content: bytes) -> bytes:
    return pickle.PROTO + b"\x05" + pickle.FRAME + len(content).to_bytes(8, "little") + content


class _Source:
    """What an unpickler reads from: one content after the other, where it is."""

    def __init__(self) -> None:
        self.moved = 0
        self._content = self._left = memoryview(b"")

    def begin(self, content: memoryview) -> None:
        """Goes on with this content."""
        self._content = self._left = content

    def is_read(self, content: memoryview) -> bool:
        """Whether this content was read to its end."""
        return content is self._content and not self._left

    def read(self, size: int) -> bytes:
        """The next bytes."""
        piece, self._left = self._left[:size], self._left[size:]
        self.moved += 1
        return bytes(piece)

    def readinto(self, space) -> int:
        """The next bytes, for a large object."""
        space = memoryview(space).cast("B")
        size = min(len(space), len(self._left))
        space[:size], self._left = self._left[:size], self._left[size:]
        self.moved += 1
        return size

    def readline(self) -> bytes:
        """Nothing: no pickle of a session has lines."""
        return b""
