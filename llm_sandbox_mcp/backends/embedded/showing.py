"""Which of the operator's folders sandboxes can have as mounts; the server copies the others into each sandbox.

Code uses a mounted folder as some other user of the machine. So a folder is mounted only if such users may read it, and
if two things that they could use are not found in it:

- a socket or pipe, through which code could talk to programs of the server's user: a read-only mount does not prevent
  that;
- a config of a Git repository with a secret, such as a password in the URL of a remote: a copy has a config without it.

Both are looked for when the server starts, in the first `_ENTRIES` entries; the configs of repositories come first.
"""

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from ...base import git_config
from ...base.open_folders import View

_ENTRIES = 10_000
"""How many entries of a folder are searched."""
_OTHERS_READ = stat.S_IROTH | stat.S_IXOTH
_OTHERS_USE = stat.S_IROTH | stat.S_IWOTH
_CONFIGS = ("config", "config.worktree")
_GIT = ".git"
_LARGE = ("objects", "refs", "logs", "lfs")
"""Folders of a repository with many entries and no configs, which come last."""


@dataclass(frozen=True, slots=True)
class Mountable:
    """A folder that can be mounted, as it was when it was looked at."""

    view: View
    identity: tuple[int, int]

    @classmethod
    def find(cls, view: View) -> "Mountable | None":
        """The folder of a view, if it can be mounted. Folders that are open for writing are always copied."""
        if view.folder.writable:
            return None
        try:
            state = os.stat(view.folder.path)
            if state.st_mode & _OTHERS_READ != _OTHERS_READ or any(_obstacles(view.folder.path)):
                return None
        except OSError:
            return None
        return cls(view, (state.st_dev, state.st_ino))

    @property
    def current(self) -> bool:
        """Whether the folder's path still leads to it: a folder that replaced it is not the one that was mounted."""
        try:
            state = os.stat(self.view.folder.path)
        except OSError:
            return False
        return (state.st_dev, state.st_ino) == self.identity


def _obstacles(folder: str) -> Iterator[str]:
    """What keeps a folder from being mounted: sockets and pipes that others may use, and configs with secrets."""
    left = _ENTRIES
    folders = deque([folder])
    while folders and left:
        path = folders.pop()
        try:
            with os.scandir(path) as scanned:
                entries = [*islice(scanned, left)]
        except OSError:
            continue  # removed meanwhile, or closed to this user
        left -= len(entries)
        within = _GIT in path.split("/")
        # A repository without a working tree has another name.
        has_config = within or any(entry.name == "HEAD" for entry in entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if _mode(entry) & stat.S_IXOTH:
                    soon = (within or entry.name == _GIT) and entry.name not in _LARGE
                    (folders.append if soon else folders.appendleft)(entry.path)
            elif _is_door(entry) or (has_config and entry.name in _CONFIGS and _shows_secrets(entry)):
                yield entry.path


def _is_door(entry: os.DirEntry[str]) -> bool:
    return not entry.is_file() and not entry.is_symlink() and bool(_mode(entry) & _OTHERS_USE)


def _shows_secrets(entry: os.DirEntry[str]) -> bool:
    """Whether others may read a config that may hold a secret. If it is a link, the file that it leads to decides."""
    mode = _mode(entry)
    if not stat.S_ISREG(mode) or not mode & stat.S_IROTH:
        return False
    try:
        # It may have been replaced, even by a pipe.
        file = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as config:
            return not stat.S_ISREG(os.fstat(file).st_mode) or git_config.has_secrets(config.read(git_config.MOST + 1))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _mode(entry: os.DirEntry[str]) -> int:
    with suppress(FileNotFoundError):  # removed meanwhile
        return entry.stat(follow_symlinks=False).st_mode
    return 0
