"""Names contents by what they are, at the speed of memory: in blocks, on several processors."""

from __future__ import annotations

import posix
from _thread import allocate_lock, start_new_thread

try:
    from _hashlib import openssl_sha256 as sha256  # it uses the processor's own instructions, as no other one does
except ImportError:
    from hashlib import sha256

_BLOCK = 1 << 20
_LENGTH = 32
"""Characters of a name, with four bits each: no accident gives two contents the same."""
_THREADS_MOST = 4


class Digest:
    """The digest of a content that comes in pieces of any size; `tell` is called while it gets on."""

    def __init__(self, tell) -> None:
        self._tell = tell
        self._done: list = []
        self._next = sha256()
        self._filled = 0

    def update(self, content) -> None:
        """Takes the next piece, without a copy."""
        content = memoryview(content).cast("B")
        at = 0
        while at < len(content):
            if not self._filled and len(content) - at >= _BLOCK:
                starts = range(at, len(content) - _BLOCK + 1, _BLOCK)
                self._done += _blocks(content, starts, self._tell)
                at += len(starts) * _BLOCK
                continue
            piece = content[at : at + _BLOCK - self._filled]
            at += len(piece)
            self._next.update(piece)
            self._filled += len(piece)
            if self._filled == _BLOCK:
                self._done.append(self._next.digest())
                self._next, self._filled = sha256(), 0

    def name(self) -> str:
        """The name of all that was taken."""
        last = [self._next.digest()] if self._filled else []
        return sha256(b"".join(self._done + last)).hexdigest()[:_LENGTH]


def _blocks(content: memoryview, starts: range, tell) -> list:
    """The digests of whole blocks, which begin there."""
    found: dict = {}
    left = [*reversed(starts)]

    def work(done=None) -> None:
        try:
            while left:
                at = left.pop()
                found[at] = sha256(content[at : at + _BLOCK]).digest()
                if done is None:
                    tell()
        except IndexError:  # another thread has taken the last one
            pass
        finally:
            if done is not None:
                done.release()

    waiting = []
    try:
        for _ in range(min(_THREADS_MOST, len(posix.sched_getaffinity(0)), len(left)) - 1):
            done = allocate_lock()
            done.acquire()
            start_new_thread(work, (done,))
            waiting.append(done)
    except RuntimeError:  # the sandbox may have no more threads
        pass
    try:
        work()
    finally:
        left.clear()  # after an error, such as that of a limit, the others end soon
        for done in waiting:
            done.acquire()
    return [found.get(at, b"") for at in starts]
