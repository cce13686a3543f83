"""Which of the operator's folders sandboxes can have as mounts; the server copies the others into each sandbox.

Code uses a mounted folder as some other user of the machine. So a folder is mounted only if such users may read it, and
if they find no socket or pipe in it, through which code could talk to programs of the server's user: a read-only mount
does not prevent that.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ...open_folders import View

_ENTRIES = 10_000
"""How many entries of a folder are searched for sockets and pipes."""
_OTHERS_READ = stat.S_IROTH | stat.S_IXOTH
_OTHERS_USE = stat.S_IROTH | stat.S_IWOTH


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
            if state.st_mode & _OTHERS_READ != _OTHERS_READ or any(_doors(view.folder.path)):
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


def _doors(folder: str) -> Iterator[str]:
    """The sockets and pipes below a folder that others may use."""
    budget = iter(range(_ENTRIES))
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if next(budget, None) is None:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file() and not entry.is_symlink() and _others_use(entry):
                        yield entry.path
        except OSError:
            continue  # removed meanwhile, or closed to this user


def _others_use(entry: os.DirEntry[str]) -> bool:
    with suppress(FileNotFoundError):  # removed meanwhile
        return bool(entry.stat(follow_symlinks=False).st_mode & _OTHERS_USE)
    return False
