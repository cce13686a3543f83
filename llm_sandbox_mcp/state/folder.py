"""Saved sessions in a folder: one folder for each owner in it, one file for each session."""

import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from ..base.errors import StoreFailed
from .store import Entry, Sink, Source, Store

T = TypeVar("T")

_PATIENCE = 30.0
"""Seconds for one operation of the disk."""
_AT_ONCE = 16
"""Operations at once: a folder that does not answer, as on another machine, must not take all threads of the server."""
_STEP = "the operator can set another one, sessions.store in the profile"
_END = ".state"
_PART = ".part"
_STALE = 3600.0
"""Seconds after which an incomplete file that nobody has touched is one that a killed server left."""
_MODE = 0o700


class FolderStore(Store):
    """Keeps objects as files that only this user can read."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self._folder = folder
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def entries(self, owner: str) -> Sequence[Entry]:
        """All complete objects of an owner; the incomplete ones that killed servers left are removed."""
        return await self.do(lambda: list(_entries(self._folder / owner)))

    @asynccontextmanager
    async def create(self, owner: str, name: str) -> AsyncIterator[Sink]:
        """A new object, under another name until it is complete."""
        folder = self._folder / owner
        part = folder / f"{secrets.token_hex(8)}{_PART}"
        over = threading.Event()

        def begin() -> _File:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=_MODE, exist_ok=True)
            folder.mkdir(mode=_MODE, exist_ok=True)
            file = _File(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            if over.is_set():  # nobody waited for it any more, and the removal below may have come too early
                part.unlink(missing_ok=True)
            return file

        try:
            file = await self.do(begin, _File.close)
            try:
                yield _FileSink(self, file, part, folder / f"{name}{_END}")
            finally:
                file.close()
        finally:
            over.set()
            with anyio.CancelScope(shield=True), suppress(StoreFailed):
                await self.do(lambda: part.unlink(missing_ok=True))

    @asynccontextmanager
    async def open(self, owner: str, name: str) -> AsyncIterator[Source | None]:
        """An object to read, locked against the removal of old ones."""

        def begin() -> tuple[_File, os.stat_result] | None:
            try:
                number = os.open(
                    self._folder / owner / f"{name}{_END}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
                )
            except FileNotFoundError:
                return None
            file, status = _File(number), os.fstat(number)
            if not stat.S_ISREG(status.st_mode):  # put there by somebody else
                file.close()
                return None
            with suppress(OSError):  # where there are no locks, one that is being read stays readable all the same
                fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return file, status

        found = await self.do(begin, lambda found: found[0].close() if found else None)
        if found is None:
            yield None
            return
        file, status = found
        try:
            yield _FileSource(self, file, status)
        finally:
            file.close()

    async def remove(self, owner: str, name: str, tag: str = "") -> bool:
        """Removes an object; one that somebody reads stays readable until then."""
        file = self._folder / owner / f"{name}{_END}"
        return await self.do(lambda: _remove(file, tag))

    async def rename(self, owner: str, name: str, new: str) -> None:
        """Gives an object another name, in the place of what has that; does nothing if there is none."""
        folder = self._folder / owner

        def rename() -> None:
            with suppress(FileNotFoundError), _locked(folder) as number:
                os.rename(folder / f"{name}{_END}", folder / f"{new}{_END}")
                os.fsync(number)

        await self.do(rename)

    async def do(self, work: Callable[[], T], undo: Callable[[T], object] = lambda result: None) -> T:
        """Does something with files in a thread; `undo` takes it back if nobody waits for it any more.

        Raises `StoreFailed` if it fails, or takes too long.
        """
        guard, done, left = threading.Lock(), list[T](), False

        def in_thread() -> T:
            result = work()
            with guard:
                done.append(result)
                late = left
            if late:
                undo(result)
            return result

        try:
            with anyio.fail_after(_PATIENCE):
                return await anyio.to_thread.run_sync(in_thread, abandon_on_cancel=True, limiter=self._limiter)
        except BaseException as error:
            with guard:
                left, unwanted = True, [*done]
            for result in unwanted:
                undo(result)
            if isinstance(error, OSError):  # as is `TimeoutError`
                raise self._failed(error) from error
            raise

    def _failed(self, error: OSError) -> StoreFailed:
        if isinstance(error, TimeoutError):
            cause = f"the folder for saved sessions, {self.place}, does not answer"
            return StoreFailed(cause, "look at its disk, and try again")
        cause = f"the folder for saved sessions, {self.place}, cannot be used: {error.strerror}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return StoreFailed(cause, "delete saved sessions, or make room there" if full else _STEP)


class _File:
    """A descriptor that threads use; it is closed when the last of them is done with it, never under it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._guard = threading.Lock()
        self._users = 0
        self._closing = False

    def use(self, work: Callable[[int], T]) -> T:
        """Does something with the descriptor."""
        with self._guard:
            if self._closing:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._users += 1
        try:
            return work(self._number)
        finally:
            self._leave(1)

    def close(self) -> None:
        """Closes the descriptor, now or as soon as nobody uses it."""
        with self._guard:
            self._closing = True
        self._leave(0)

    def _leave(self, users: int) -> None:
        with self._guard:
            self._users -= users
            last = self._closing and not self._users and self._number >= 0
            number, self._number = self._number, -1 if last else self._number
        if last:
            os.close(number)


class _FileSink(Sink):
    def __init__(self, store: FolderStore, file: _File, part: Path, place: Path) -> None:
        self._store = store
        self._file = file
        self._part = part
        self._place = place

    async def write(self, data: bytes) -> None:
        await self._store.do(lambda: self._file.use(lambda number: _write(number, data)))

    async def complete(self) -> None:
        def complete(number: int) -> None:
            os.fsync(number)
            with _locked(self._place.parent) as folder:
                os.replace(self._part, self._place)
                os.fsync(folder)

        await self._store.do(lambda: self._file.use(complete))


class _FileSource(Source):
    def __init__(self, store: FolderStore, file: _File, status: os.stat_result) -> None:
        self._store = store
        self._file = file
        self.size = status.st_size
        self.tag = _tag(status)

    async def read(self, start: int, length: int) -> bytes:
        return await self._store.do(lambda: self._file.use(lambda number: os.pread(number, length, start)))


def _write(number: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(number, left) :]


def _entries(folder: Path) -> Iterator[Entry]:
    with suppress(FileNotFoundError):
        for file in os.scandir(folder):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                status = file.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if file.name.endswith(_END):
                    yield Entry(file.name.removesuffix(_END), status.st_size, _tag(status))
                elif file.name.endswith(_PART) and status.st_mtime < time.time() - _STALE:
                    os.unlink(file)


def _remove(file: Path, tag: str) -> bool:
    with suppress(FileNotFoundError), _locked(file.parent), open(file, "rb") as opened:
        if tag and _tag(os.fstat(opened.fileno())) != tag:
            return False
        if tag:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        file.unlink()
        return True
    return False


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """The folder of an owner, in which nobody else puts an object in the place of another, or removes one."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # where there are no locks, this is as good as it gets
            fcntl.flock(number, fcntl.LOCK_EX)
        yield number
    finally:
        os.close(number)


def _tag(status: os.stat_result) -> str:
    return f"{status.st_ino} {status.st_mtime_ns}"
