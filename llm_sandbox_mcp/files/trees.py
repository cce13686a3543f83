"""A folder of this machine with everything below it, read file by file: no link is followed, however new it is."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from ..backends import archive
from ..backends.listing import FOLDER, Entry, Tree
from ..git_config import clean
from ..utf8 import is_text
from .beneath import open_file, open_folder
from .merging import parents

_PART = 1 << 20
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEPTH = 64
GIT = ".git"
_GIT_CONFIGS = ("config", "config.worktree")
_LARGEST_CONFIG = 1 << 20


def in_git(path: str) -> bool:
    """Whether a path below a folder belongs to a repository's own files, which code can read and never writes."""
    return GIT in path.split("/")


class Observer:
    """Is told what a list is made of, so that it can notice later changes."""

    def enters(self, folder: int) -> None:
        """Called with the descriptor of each folder before it is read."""

    def cannot_watch(self) -> None:
        """Called if something could change unnoticed: a file that has another name elsewhere."""


def list_tree(top: str, *, files: int, size: int, observer: Observer | None = None) -> Tree:
    """What is below a folder: files, folders, and what code cannot have, such as links. Raises `OSError`.

    Leaves out hidden files and folders except `.git`, other file systems, and names that are not UTF-8. Raises
    `OverflowError` if there is more than `files`, or more bytes than `size`.
    """
    found: dict[str, Entry] = {}
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _Listing(found, os.fstat(at).st_dev, observer or Observer(), files, size).read(at, "", _DEPTH)
    finally:
        os.close(at)
    return found


@dataclass(slots=True)
class _Listing:
    found: dict[str, Entry]
    device: int
    observer: Observer
    files: int
    """How many more names there may be."""
    size: int
    """How many more bytes."""

    def read(self, at: int, prefix: str, depth: int) -> None:
        """Adds what is below an open folder, whose path is `prefix`."""
        folders: list[str] = []
        self.observer.enters(at)
        with os.scandir(at) as entries:
            for entry in entries:
                name = entry.name
                if (name[0] == "." and name != GIT) or not is_text(name):
                    continue
                try:
                    state = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # removed meanwhile
                if state.st_dev != self.device:
                    continue
                made = self.found[prefix + name] = Entry.of(state)
                self.files -= 1
                if made is FOLDER:
                    folders.append(name)
                elif made.kind == "f":
                    self.size -= state.st_size
                    if state.st_nlink > 1:
                        self.observer.cannot_watch()
                if self.files < 0 or self.size < 0:
                    raise OverflowError
        for name in folders if depth else ():
            try:
                below = os.open(name, _OPEN, dir_fd=at)
            except OSError:
                continue  # removed or replaced meanwhile, or closed to this user
            try:
                self.read(below, f"{prefix}{name}/", depth - 1)
            finally:
                os.close(below)


def pack(top: Path, paths: Sequence[str], packed: Callable[[str, Entry], None], *, writable: bool) -> Iterator[bytes]:
    """A tar archive of these files and folders, in parts that are not empty.

    `packed` is called with each file as it was before it was read. Files that are gone or cannot be read are left out.
    The configuration of a repository is cleaned of what could be a secret. Files keep their permissions and times;
    their owner can read them, and write them only if they are `writable`.
    """
    made: set[str] = set()
    with ExitStack() as stack:
        above: str | None = None
        folder = -1
        for path in paths:
            below, _, name = path.rpartition("/")
            with suppress(OSError):
                if below != above:
                    above = None
                    stack.close()
                    folder = stack.enter_context(open_folder(top, below.split("/") if below else ()))
                    above = below
                    for parent in [*reversed([*parents(path)])]:
                        if parent not in made:
                            made.add(parent)
                            yield archive.folder_header(parent)
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    made.add(path)
                    packed(path, FOLDER)
                    yield archive.folder_header(path)
                else:
                    yield from _file(path, folder, name, packed, writable=writable)
    yield archive.END


def _file(
    path: str, folder: int, name: str, packed: Callable[[str, Entry], None], *, writable: bool
) -> Iterator[bytes]:
    with os.fdopen(open_file(folder, name), "rb", buffering=0) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            return
        packed(path, Entry.of(state))
        git = in_git(path)
        mode = (stat.S_IMODE(state.st_mode) | 0o400) & (0o777 if writable and not git else 0o555)
        if git and name in _GIT_CONFIGS:
            content = clean(file.read(_LARGEST_CONFIG + 1) or b"")
            size, parts = len(content), iter((content,))
        else:
            size, parts = state.st_size, _content(file, state.st_size)
        yield archive.timed_header(path, size, mode=mode, mtime=state.st_mtime_ns)
        yield from parts
        if size % archive.BLOCK:
            yield archive.padding(size)


def _content(file: FileIO, size: int) -> Iterator[bytes]:
    """So many bytes of a file; zeros if it has become shorter.

    Then its numbers have changed too, and it is copied again before the next run.
    """
    while size:
        part = file.read(min(size, _PART)) or bytes(min(size, _PART))
        size -= len(part)
        yield part
