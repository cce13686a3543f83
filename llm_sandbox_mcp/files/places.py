"""Where the code's files are in a folder of a person's: under their own paths, unless something else is in the way."""

import errno
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .beneath import make_folder, open_folder, rename_new
from .merging import VERSIONS, beside, parents
from .trees import HEAD, is_in_repository


class KeptOut(PermissionError):
    """Nothing is ever written there, since other programs obey what they find there; `strerror` says why."""


class Places:
    """The places below one folder; none is chosen that is `taken`, by what code makes, moves or deletes itself."""

    def __init__(self, top: Path, taken: Collection[str] = ()) -> None:
        self._top = top
        self._taken = taken
        self._detours: dict[str, str] = {}
        """Folders whose names something else has here, with the paths of those that the code's files get into."""
        self._aside: set[str] = set()
        """Those of them that were chosen by `set_aside`."""
        self._repositories: dict[tuple[str, ...], bool] = {}

    @contextmanager
    def open(self, name: str, *, make: bool = True, detour: bool = True) -> Iterator[tuple[int, str]]:
        """The folder and the last name of a path; on a detour if something else has the name of a folder on the way."""
        with ExitStack() as stack:
            for _ in range(VERSIONS):
                *below, last = self.path(name).split("/")
                self._keep_out(below, last)
                try:
                    folder = stack.enter_context(open_folder(self._top, below, make=make))
                except OSError as error:
                    blocked = make and detour and error.errno in (errno.ENOTDIR, errno.ELOOP)
                    if not blocked or not self._avoid(name):
                        raise
                else:
                    yield folder, last
                    return
            raise OSError(errno.EEXIST, f"there are {VERSIONS} folders beside it")

    def path(self, name: str) -> str:
        """The path that a path of the code's has here."""
        for above in parents(name) if self._detours else ():
            if above in self._detours:
                return self._detours[above] + name[len(above) :]
        return name

    def is_detour(self, name: str) -> bool:
        """Whether it has another path here than in the copy, and will not get the one that it has there."""
        return any(above in self._detours and above not in self._aside for above in parents(name))

    def set_aside(self, name: str) -> str:
        """Makes a folder beside the name that something else has still, until `give_name`; returns its path here."""
        with self.open(name) as (folder, last):
            above = self.path(name).split("/")[:-1]
            readable = 0o444
            with suppress(FileNotFoundError):
                readable &= os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode
            for number in range(1, VERSIONS + 1):
                path = "/".join((*above, beside(last, number)))
                if path not in self._taken and make_folder(folder, beside(last, number), readable | readable >> 2):
                    self._detours[name] = path
                    self._aside.add(name)
                    return path
        raise OSError(errno.EEXIST, f"there are {VERSIONS} folders beside it")

    def give_name(self, name: str) -> None:
        """Gives a folder that was set aside its name, or raises `FileExistsError`."""
        *above, aside = self._detours[name].split("/")
        with open_folder(self._top, above) as folder:
            rename_new(folder, aside, folder, name.rpartition("/")[2])
        del self._detours[name]
        self._aside.remove(name)

    def _keep_out(self, below: list[str], last: str) -> None:
        if any(name.startswith(".") for name in (*below, last)):
            raise KeptOut(errno.EPERM, "its name or a folder of it is hidden")
        if last.upper() == HEAD:  # in any case: not all file systems tell one from the other
            raise KeptOut(errno.EPERM, "with a file of that name, its folder could become a repository")
        if is_in_repository(self._top, below, self._repositories):
            raise KeptOut(errno.EPERM, "it is in a repository's own folder")

    def _avoid(self, name: str) -> bool:
        """Chooses another folder for the first one of a path whose name something else has; false if there is none."""
        parts = name.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            *above, last = self.path(f"{path}/").rstrip("/").split("/")
            if _is_folder(self._top, [*above, last]):
                continue
            for number in range(1, VERSIONS + 1):
                other = beside(last, number)
                if "/".join((*above, other)) in self._taken:
                    continue
                with suppress(NotADirectoryError), open_folder(self._top, [*above, other], make=True):
                    self._detours[path] = "/".join((*above, other))
                    return True
            return False
        return False


def _is_folder(top: Path, names: list[str]) -> bool:
    try:
        with open_folder(top, names):
            return True
    except OSError:
        return False
