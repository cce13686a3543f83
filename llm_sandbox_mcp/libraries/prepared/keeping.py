"""Folders that are made once for all sandboxes; those in use are kept, and the most recently used of the others.

Each has a mark: a file whose modification time is the last use, and which the servers that use the folder lock.

Their paths are `CACHE/KIND/PLACE/NAME`. A sandbox sees each place of its server, with all that appears there while the
sandbox lives, and whoever can open a file can lock it. So marks, locks of builds, and folders that are not finished are
elsewhere in the cache, where no sandbox looks; and a place stays when it is empty.
"""

import errno
import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

_LOCKS, _UNFINISHED = "locks", "unfinished"
DAYS = 30
"""A folder that was not used for so many days is removed in any case."""


def use(target: Path) -> bool:
    """Whether the folder exists; if it does, it is marked as used now."""
    if not target.is_dir():
        return False
    # The folder may belong to another user, or be on a read-only file system: it exists, but cannot be marked.
    with suppress(OSError):
        make_private(target)
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
        if target.is_dir() and not os.access(_mark(target).parent, os.W_OK):
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
    for rest in (folder.parent / _UNFINISHED).glob("*.old"):  # from a server that was killed while it removed a folder
        shutil.rmtree(rest, ignore_errors=True)
    removed = 0
    for place, path in enumerate(sorted(kept(folder), key=_used_at, reverse=True)):
        if place >= most or time.time() - _used_at(path) > DAYS * 86400:
            removed += _remove(path)
    return removed


def kept(folder: Path) -> list[Path]:
    """The folders of one kind that exist."""
    return [path for path in folder.glob("*-*/*") if path.is_dir()]


def make_private(target: Path) -> None:
    """Makes the folders for what belongs to such a folder and that no sandbox sees."""
    for name in (_LOCKS, _UNFINISHED):
        (target.parents[2] / name).mkdir(mode=0o700, exist_ok=True)


def lock_of(target: Path) -> Path:
    """The file to lock while such a folder is made."""
    return target.parents[2] / _LOCKS / f"{_full_name(target)}.lock"


def unfinished(target: Path) -> Path:
    """Where such a folder is made, to be moved to its own path at once."""
    return target.parents[2] / _UNFINISHED / f"{_full_name(target)}.new"


def _mark(target: Path) -> Path:
    return target.parents[2] / _LOCKS / f"{_full_name(target)}.used"


def _full_name(target: Path) -> str:
    return f"{target.parent.name}-{target.name}"


def _used_at(path: Path) -> float:
    try:
        return _mark(path).stat().st_mtime
    except OSError:
        return 0.0


def _remove(path: Path) -> bool:
    with suppress(OSError):
        make_private(path)
        descriptor = os.open(_mark(path), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Renamed first: a partly removed folder must never be found. The lock of builds stays: it may be held.
            doomed = unfinished(path).with_suffix(".old")
            path.rename(doomed)
            _mark(path).unlink()
            shutil.rmtree(doomed, ignore_errors=True)
            return True
        finally:
            os.close(descriptor)
    return False
