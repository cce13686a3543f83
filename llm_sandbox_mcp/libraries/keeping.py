"""Which prepared environments are kept: those in use, and of the others those used last."""

import errno
import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from .environments import USED, environment_path

MOST = 20
"""Environments that are kept; one with pandas and matplotlib takes 350 MB."""
_UNUSED = 30 * 86400.0
"""Seconds after which one that nobody used goes anyhow."""


def hold(cache: Path, key: str) -> int:
    """A descriptor that keeps the environment of that key from being removed, until it is closed.

    Raises `FileNotFoundError` where it has been removed since it was prepared.
    """
    descriptor = os.open(environment_path(cache, key) / USED, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Who removes it has it locked from before until it is gone.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:
            raise BlockingIOError
    except BlockingIOError:
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "removed just now", key) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def prune(cache: Path, most: int = MOST) -> int:
    """Removes environments that no server asked for in 30 days, and beyond so many those used longest ago.

    Those that a live server holds stay. Returns how many were removed.
    """
    removed = 0
    for place, path in enumerate(sorted(kept(cache), key=_used_at, reverse=True)):
        if place >= most or time.time() - _used_at(path) > _UNUSED:
            removed += _remove(path)
    return removed


def kept(cache: Path) -> list[Path]:
    """The environments that are there."""
    folder = cache / "environments"
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []


def _used_at(path: Path) -> float:
    try:
        return (path / USED).stat().st_mtime
    except OSError:  # being removed by another
        return 0.0


def _remove(path: Path) -> bool:
    with suppress(OSError):
        descriptor = os.open(path / USED, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Out of sight first: what is half removed must never be found. The lock of builds stays: it may be held.
            doomed = path.parent / f".{path.name}.old"
            path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
            return True
        finally:
            os.close(descriptor)
    return False
