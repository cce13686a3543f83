"""The folder of one running server, and the lock by which others see that it still lives."""

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import ProfileError

_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where a server keeps what lives as long as itself; readable for the uids of its sandboxes."""

    path: Path

    @property
    def server_id(self) -> str:
        return self.path.name


@contextmanager
def open_runtime(root: Path) -> Iterator[Runtime]:
    """Makes a folder below the root and holds its lock; leaving the scope removes it.

    A server that is killed leaves it behind for `sweep`. Raises `ProfileError` when it cannot be made.
    """
    path = root / secrets.token_hex(6)
    try:
        root.mkdir(mode=0o755, parents=True, exist_ok=True)
        if root.lstat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user")
        with _turn(root):
            path.mkdir(mode=0o755)
            path.chmod(0o755)
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise ProfileError(f"cannot make {path}: {error.strerror}; set embedded.runtime in the profile") from error
    try:
        yield Runtime(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def is_alive(root: Path, server_id: str) -> bool:
    """Whether the server of that id still holds its lock."""
    try:
        lock = os.open(root / server_id / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def sweep(root: Path) -> int:
    """Removes the folders of servers that are gone, and counts them."""
    if not root.is_dir():
        return 0
    with _turn(root):
        gone = [path for path in root.iterdir() if not is_alive(root, path.name)]
        for path in gone:
            shutil.rmtree(path, ignore_errors=True)
    return len(gone)


@contextmanager
def _turn(root: Path) -> Iterator[None]:
    """Keeps a sweep from finding a folder that has been made and is not locked yet."""
    turn = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
    finally:
        os.close(turn)
