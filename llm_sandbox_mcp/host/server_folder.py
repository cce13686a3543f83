"""The folder of one running server, and the lock that shows other servers that it is still alive."""

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import ProfileError

_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The folder for things that live as long as the server; the uids of its sandboxes can read it."""

    path: Path

    @property
    def server_id(self) -> str:
        return self.path.name


@contextmanager
def open_runtime(root: Path) -> Iterator[Runtime]:
    """Creates a folder below the root and holds its lock; leaving the scope removes the folder.

    If the server is killed, `sweep` removes the folder later. Raises `ProfileError` if it cannot be created.
    """
    path = root
    try:
        make_public(root)
        if root.lstat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user")
        path = root / f"{_mark(root)}{secrets.token_hex(6)}"
        # `sweep` ignores hidden folders; this one gets its name once the lock is held.
        hidden = root / f".{path.name}"
        make_public(hidden)
        lock = os.open(hidden / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        hidden.rename(path)
    except OSError as error:
        raise ProfileError(f"cannot create {path}: {error.strerror}", "set server.runtime in the profile") from error
    try:
        yield Runtime(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def make_public(folder: Path) -> None:
    """Creates the folder and its parents, readable for all whatever the umask: sandboxes run as other users."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def is_alive(root: Path, server_id: str) -> bool:
    """Whether the server with that id still holds its lock; also true for one of another root, which cannot be seen."""
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
    """Removes the folders of servers that are gone; returns their number."""
    folders = [path for path in root.iterdir() if not path.name.startswith(".")] if root.is_dir() else []
    gone = [path for path in folders if not is_alive(root, path.name)]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return len(gone)


def _mark(root: Path) -> str:
    """The prefix of the ids of all servers below a root.

    All servers of a machine share its cgroups, and a server with another root must not be taken for dead. The prefix
    is not made from the path: in another container, the same path leads to another folder.
    """
    state = os.stat(root)
    return f"{state.st_dev:x}-{state.st_ino:x}-"
