"""Folders that are made once for all sandboxes; those in use are kept, and the most recently used of the others.

Each has a mark: a file whose modification time is the last use, and which the servers that use the folder lock.
Sandboxes see everything next to these folders, and whoever can open a file can lock it. So the marks are in a separate
folder.
"""

import errno
import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

DAYS = 30
"""A folder that was not used for so many days is removed in any case."""


def use(target: Path) -> bool:
    """Whether the folder exists; if it does, it is marked as used now."""
    if not target.is_dir():
        return False
    # The folder may belong to another user, or be on a read-only file system: it exists, but cannot be marked.
    with suppress(OSError):
        marks(target).mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(_mark(target), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        os.utime(_mark(target))
    return True


def hold(target: Path) -> int | None:
    """A descriptor that protects such a folder from removal until it is closed.

    None if the folder cannot be marked: it is on a read-only file system, or belongs to another user.
    Raises `FileNotFoundError` if it was removed after it was prepared.
    """
    try:
        descriptor = os.open(_mark(target), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        if target.is_dir() and not os.access(marks(target), os.W_OK):
            return None
        raise
    try:
        # A server that removes the folder holds the lock until the folder is gone.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:
            raise BlockingIOError
    except BlockingIOError:
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "removed just now", str(target)) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def prune(folder: Path, most: int) -> int:
    """Removes folders that no server used in 30 days, and the least recently used ones if there are more than `most`.

    A folder that a live server holds stays. Returns how many were removed.
    """
    for rest in folder.glob(".*.old"):  # from a server that was killed while it removed a folder
        shutil.rmtree(rest, ignore_errors=True)
    removed = 0
    for place, path in enumerate(sorted(kept(folder), key=_used_at, reverse=True)):
        if place >= most or time.time() - _used_at(path) > DAYS * 86400:
            removed += _remove(path)
    return removed


def kept(folder: Path) -> list[Path]:
    """The folders that exist."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []


def marks(target: Path) -> Path:
    """The folder of marks and locks for such a folder and those next to it."""
    return target.parent.with_name("locks")


def _mark(target: Path) -> Path:
    return marks(target) / f"{target.name}.used"


def _used_at(path: Path) -> float:
    try:
        return _mark(path).stat().st_mtime
    except OSError:
        return 0.0


def _remove(path: Path) -> bool:
    with suppress(OSError):
        marks(path).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(_mark(path), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Renamed first: a partly removed folder must never be found. The lock of builds stays: it may be held.
            doomed = path.parent / f".{path.name}.old"
            path.rename(doomed)
            _mark(path).unlink()
            shutil.rmtree(doomed, ignore_errors=True)
            return True
        finally:
            os.close(descriptor)
    return False
