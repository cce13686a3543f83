"""Folders made once for all sandboxes, and which of them are kept: those in use, and of the others those used last.

Each has a mark: a file as old as its last use, and locked by the servers that use it. Sandboxes see all that is beside
these folders, and whoever can open a file can lock it, so that the marks are in a folder of their own.
"""

import errno
import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

DAYS = 30
"""After which one that nobody used goes anyhow."""


def use(target: Path) -> bool:
    """Whether it is there; then it counts as used now."""
    if not target.is_dir():
        return False
    # Another user's, or on a read-only file system, it is there, and not ours to date.
    with suppress(OSError):
        marks(target).mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(_mark(target), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        os.utime(_mark(target))
    return True


def hold(target: Path) -> int | None:
    """A descriptor that keeps such a folder from being removed, until it is closed.

    Nothing where it cannot be marked, as on a read-only file system, or where it is another user's.
    Raises `FileNotFoundError` where it has been removed since it was prepared.
    """
    try:
        descriptor = os.open(_mark(target), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        if target.is_dir() and not os.access(marks(target), os.W_OK):
            return None
        raise
    try:
        # Who removes it has it locked from before until it is gone.
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
    """Removes what no server asked for in 30 days, and beyond so many what was used longest ago.

    What a live server holds stays. Returns how many were removed.
    """
    for rest in folder.glob(".*.old"):  # of one who was killed here
        shutil.rmtree(rest, ignore_errors=True)
    removed = 0
    for place, path in enumerate(sorted(kept(folder), key=_used_at, reverse=True)):
        if place >= most or time.time() - _used_at(path) > DAYS * 86400:
            removed += _remove(path)
    return removed


def kept(folder: Path) -> list[Path]:
    """What is there."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []


def marks(target: Path) -> Path:
    """The folder of marks and locks of what is beside such a folder."""
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
            # Out of sight first: what is half removed must never be found. The lock of builds stays: it may be held.
            doomed = path.parent / f".{path.name}.old"
            path.rename(doomed)
            _mark(path).unlink()
            shutil.rmtree(doomed, ignore_errors=True)
            return True
        finally:
            os.close(descriptor)
    return False
