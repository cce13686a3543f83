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
    path = root
    try:
        make_public(root)
        if root.lstat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user")
        path = root / f"{_mark(root)}{secrets.token_hex(6)}"
        # Under a name that `sweep` passes over until the lock is held.
        unborn = root / f".{path.name}"
        make_public(unborn)
        lock = os.open(unborn / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unborn.rename(path)
    except OSError as error:
        raise ProfileError(f"cannot make {path}: {error.strerror}; set server.runtime in the profile") from error
    try:
        yield Runtime(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def make_public(folder: Path) -> None:
    """Makes the folder and what is above it; sandboxes run as other users, whatever the umask of the server is."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def is_alive(root: Path, server_id: str) -> bool:
    """Whether the server of that id still holds its lock, or keeps it below another root, where it cannot be seen."""
    if not root.is_dir() or not server_id.startswith(_mark(root)):
        return True
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
    folders = [path for path in root.iterdir() if not path.name.startswith(".")] if root.is_dir() else []
    gone = [path for path in folders if not is_alive(root, path.name)]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return len(gone)


def _mark(root: Path) -> str:
    """What the ids of all servers below a root begin with.

    Control groups are the machine's, and servers with another root are not to be taken for dead. Not the path: the same
    one leads elsewhere in another container.
    """
    state = os.stat(root)
    return f"{state.st_dev:x}-{state.st_ino:x}-"
