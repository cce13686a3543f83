"""A folder of this machine with everything below it, read file by file: no link is followed, however new it is."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from ..backends import archive
from ..backends.listing import FOLDER, Entry, Tree
from ..base.git_config import clean
from ..base.text import is_text
from .beneath import is_temporary, open_file, open_folder
from .merging import DEPTH, parents

_PART = 1 << 20
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
GIT, HEAD = ".git", "HEAD"
_LARGEST_CONFIG = 1 << 20
_BRANCH = re.compile(rb"ref:|[0-9a-fA-F]{40}")
_ENOUGH = 64


def in_git(path: str) -> bool:
    """Whether a path below a folder belongs to a repository's own files, which code can read and never writes."""
    return GIT in path.split("/")


class Observer:
    """Is told what a list is made of, so that it can notice later changes."""

    def enters(self, folder: int) -> None:
        """Called with the descriptor of each folder before it is read."""

    def finds_temporary(self, path: str) -> None:
        """Called for each file with a name that only unfinished changes have."""

    def cannot_watch(self) -> None:
        """Called if something could change unnoticed: a file that has another name elsewhere."""


def is_in_repository(top: Path, below: Sequence[str], known: dict[tuple[str, ...], bool]) -> bool:
    """Whether a folder, or one above it up to `top`, is a repository's own, whatever its name is. Raises `OSError`.

    Folders that do not exist are none. Remembers in `known` what it finds.
    """
    for count in range(len(below) + 1):
        place = (*below[:count],)
        if place not in known:
            with suppress(FileNotFoundError, NotADirectoryError), open_folder(top, place) as folder:
                known[place] = _has_head(folder)
        if known.get(place):
            return True
    return False


def _has_head(folder: int) -> bool:
    """Whether a folder has what git looks for first: a `HEAD` that is a link, or names a branch or a commit."""
    try:
        if stat.S_ISLNK(os.stat(HEAD, dir_fd=folder, follow_symlinks=False).st_mode):
            return True
        with os.fdopen(open_file(folder, HEAD), "rb", buffering=0) as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and bool(_BRANCH.match(file.read(_ENOUGH) or b""))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # git may be able to read it


def list_tree(top: str, *, files: int, size: int, observer: Observer | None = None) -> Tree:
    """What is below a folder: files, folders, and what code cannot have, such as links. Raises `OSError`.

    Leaves out hidden files and folders except `.git`, other file systems, and names that are not UTF-8. Raises
    `OverflowError` if there is more than `files`, or more bytes than `size`.
    """
    found: dict[str, Entry] = {}
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _Listing(found, os.fstat(at).st_dev, observer or Observer(), files, size).read(at, "", DEPTH)
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
                    if is_temporary(name):
                        self.observer.finds_temporary(prefix + name)
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


@dataclass(frozen=True, slots=True)
class Packed:
    """What an archive has so far."""

    files: dict[str, tuple[Entry, int]] = field(default_factory=dict)
    """What each file and folder was before it was read, and its size in the archive."""
    closed: set[str] = field(default_factory=set)
    """Files that may not be read."""
    secrets: set[str] = field(default_factory=set)
    """Files that code must not see."""


def pack(top: Path, paths: Sequence[str], packed: Packed, *, writable: bool) -> Iterator[bytes]:
    """A tar archive of these files and folders, in parts that are not empty; takes note of them in `packed`.

    Files that are gone or cannot be read are left out, and credentials in a repository, whose configuration is cleaned
    of what could be a secret. Files keep their permissions and times; their owner can read them, and write them only if
    they are `writable`.
    """
    made: set[str] = set()
    repositories: dict[tuple[str, ...], bool] = {}
    with ExitStack() as stack:
        above: str | None = None
        folder, repository = -1, False
        for path in paths:
            below, _, name = path.rpartition("/")
            try:
                if below != above:
                    above = None
                    stack.close()
                    names = below.split("/") if below else []
                    folder = stack.enter_context(open_folder(top, names))
                    above = below
                    repository = in_git(below) or is_in_repository(top, names, repositories)
                    for parent in [*reversed([*parents(path)])]:
                        if parent not in made:
                            made.add(parent)
                            yield archive.folder_header(parent)
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    made.add(path)
                    packed.files[path] = FOLDER, 0
                    yield archive.folder_header(path)
                else:
                    yield from _file(path, folder, name, packed, repository=repository, writable=writable)
            except PermissionError:
                packed.closed.add(path)
            except OSError:
                pass  # removed or replaced meanwhile, or kept from others for a moment: there is a next time
    yield archive.END


def _file(path: str, folder: int, name: str, packed: Packed, *, repository: bool, writable: bool) -> Iterator[bytes]:
    if repository and name.lower().startswith("credentials"):
        packed.secrets.add(path)
        return
    with os.fdopen(open_file(folder, name), "rb", buffering=0) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            return
        mode = (stat.S_IMODE(state.st_mode) | 0o400) & (0o777 if writable and not repository else 0o555)
        size, parts = state.st_size, _content(file, state.st_size)
        # Also those that git or an editor has just made, such as config.lock.
        if repository and name.lower().startswith("config"):
            content = clean(file.read(_LARGEST_CONFIG + 1) or b"")
            size, parts = len(content), iter((content,))
        packed.files[path] = Entry.of(state), size
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
