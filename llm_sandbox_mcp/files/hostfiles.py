"""Files on this machine that callers can name: only below folders that the operator opened, and no link leads out.

Nothing of a person's is replaced: what has the wanted name stays, unless this server wrote it, and the new file gets a
name beside it.
"""

import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

import anyio
import anyio.to_thread

from ..backends.listing import Stamp
from ..base.errors import BadHostPath, quoted
from ..base.open_folders import OpenFolder
from ..base.results import HostFile
from .beneath import Changed, InTheWay, open_file, open_folder
from .drafts import NotOwned, new_file
from .places import KeptOut, Places
from .trees import is_in_repository

_CHUNK = 1 << 20
_REMEMBERED = 10_000
_TRIES = 100
_SECRET = ("config", "credentials")
"""How the names of a repository's files begin that can have passwords in them; in lower case, as some systems find a
file by any case."""
_MODE = 0o644


class Memory:
    """Which files the calls of one server wrote, and what each was then. Forgets the oldest beyond `most`."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._lock = Lock()
        self._written: dict[str, tuple[int, Stamp]] = {}
        """By real path, the oldest first: how many were written by then, and its stamp."""
        self._count = 0

    def begin(self) -> "Call":
        """A call that writes files from now on."""
        return Call(self, self._count)

    def note(self, path: str, stamp: Stamp) -> None:
        """Takes note of a file that was just written."""
        with self._lock:
            self._written.pop(path, None)
            self._count += 1
            self._written[path] = (self._count, stamp)
            if len(self._written) > self._most:
                del self._written[next(iter(self._written))]

    def find(self, path: str, until: int) -> Stamp | None:
        """What the file was when it was written, unless that is unknown, or later than so many others."""
        with self._lock:
            number, stamp = self._written.get(path, (0, None))
            return stamp if number <= until else None


@dataclass(frozen=True, slots=True)
class Call:
    """A call replaces what earlier ones wrote, not what others write at the same time: nobody has seen that yet."""

    memory: Memory
    began: int

    def expected(self, path: str) -> Stamp | None:
        """What the file of that path must be, to be replaced; None if it stays."""
        return self.memory.find(path, self.began)


@asynccontextmanager
async def open_source(
    host_path: str, folders: Sequence[OpenFolder], *, hidden: bool
) -> AsyncIterator[tuple[int, Callable[[], AsyncIterator[bytes]]]]:
    """A file's size, and what yields its content; `BadHostPath` for all but regular files below the folders.

    Unless `hidden`, also for hidden files and for settings of a repository: there are often passwords in these.
    """
    descriptor, size = await anyio.to_thread.run_sync(partial(_open_source, host_path, folders, hidden=hidden))
    async with anyio.wrap_file(os.fdopen(descriptor, "rb")) as file:

        async def content() -> AsyncIterator[bytes]:
            left = size
            await file.seek(0)
            while left and (chunk := await file.read(min(left, _CHUNK))):
                left -= len(chunk)
                yield chunk

        yield size, content


@dataclass(frozen=True, slots=True)
class Target:
    """A file in a folder that is open for writing."""

    host_path: str
    folder: int
    path: str
    """Without links."""
    call: Call

    async def write(self, content: bytes) -> HostFile:
        """Writes the whole file or nothing, beside what is not this server's; `BadHostPath` if it cannot be written."""
        try:
            return await anyio.to_thread.run_sync(self._write, content)
        except OSError as error:
            raise BadHostPath(
                f"{quoted(self.host_path)} on this machine cannot be written: {error.strerror}"
            ) from error

    def _write(self, content: bytes) -> HostFile:
        above, wanted = os.path.split(self.path)
        name, stamp = _write_or_keep(self.folder, wanted, content, self.call.expected(self.path))
        path = os.path.join(above, name)
        if stamp is not None:
            self.call.memory.note(path, stamp)
        return HostFile(path, self.path if name != wanted else "")


@asynccontextmanager
async def open_target(
    host_path: str, folders: Sequence[OpenFolder], call: Call, *, make: bool = False
) -> AsyncIterator[Target]:
    """A new or existing file in a folder that is open for writing; raises `BadHostPath` for one elsewhere, or hidden.

    Its folder must exist, unless `make` creates it. Other programs may obey hidden files and folders, such as
    `.git/hooks`, and a repository's own folder, whatever its name is.
    """
    with ExitStack() as stack:
        yield await anyio.to_thread.run_sync(partial(_open_target, host_path, folders, call, stack, make=make))


def _open_source(host_path: str, folders: Sequence[OpenFolder], *, hidden: bool) -> tuple[int, int]:
    place = _Place.find(host_path, folders, "reading")
    if place.hidden and not hidden:
        raise BadHostPath(
            f"{quoted(host_path)} on this machine is hidden, and code gets no hidden files, as there are often "
            "passwords in them",
            "ask the user to put what code needs into a file whose name does not begin with a dot",
        )
    try:
        if not hidden and place.name.lower().startswith(_SECRET) and is_in_repository(place.root, place.folders, {}):
            raise BadHostPath(
                f"{quoted(host_path)} on this machine is a setting of a repository, and code gets none of these, as "
                "there are often passwords in them",
                "ask the user to put what code needs into a file in another folder",
            )
        with open_folder(place.root, place.folders) as folder:
            descriptor = open_file(folder, place.name)
    except OSError as error:
        raise BadHostPath(f"{quoted(host_path)} on this machine cannot be read: {error.strerror}") from error
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise BadHostPath(f"{quoted(host_path)} on this machine is not a regular file")
    return descriptor, state.st_size


def _open_target(host_path: str, folders: Sequence[OpenFolder], call: Call, stack: ExitStack, *, make: bool) -> Target:
    place = _Place.find(host_path, [folder for folder in folders if folder.writable], "writing")
    try:
        folder, _ = stack.enter_context(Places(place.root).open(place.path, make=make, detour=False))
    except KeptOut as error:
        raise BadHostPath(
            f"{quoted(host_path)} on this machine is never written: {error.strerror}", "use another name or folder"
        ) from error
    except OSError as error:
        raise BadHostPath(f"{quoted(host_path)} on this machine cannot be written: {error.strerror}") from error
    return Target(host_path, folder, str(place.root / place.path), call)


def _write_or_keep(folder: int, name: str, content: bytes, expected: Stamp | None) -> tuple[str, Stamp | None]:
    """Writes a whole file into an open folder: under its name, in place of the expected file, or beside what is there.

    Returns the name that it got, and its stamp; None if there is a file with that content already.
    """
    for _ in range(_TRIES):
        # A new draft each time: one that got a name and lost it to somebody else cannot get another.
        with new_file(folder) as draft:
            draft.write(content)
            with suppress(FileExistsError):
                return name, draft.create(name, mode=_MODE)
            if draft.same_as(name):
                return name, None
            if expected is not None:
                with suppress(Changed, InTheWay, NotOwned):
                    return name, draft.replace(name, expected)
                expected = None
                continue
            return draft.create_beside(name, mode=_MODE)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


@dataclass(frozen=True, slots=True)
class _Place:
    """A file below an open folder, whose path had no links when it was checked."""

    root: Path
    folders: tuple[str, ...]
    name: str

    @classmethod
    def find(cls, host_path: str, opened: Sequence[OpenFolder], what_for: str) -> "_Place":
        if not opened:
            raise BadHostPath(
                f"no folder on this machine is open for {what_for}", "ask the operator to open one (files.folders)"
            )
        if "\0" in host_path or not os.path.isabs(host_path):
            raise BadHostPath(f"{quoted(host_path)} on this machine must be an absolute path")
        try:
            os.fsencode(host_path)
            # The folder is resolved, but not the file itself: if that is a link, opening it is refused.
            folder, name = Path(os.path.realpath(os.path.dirname(host_path))), os.path.basename(host_path)
            tops = [Path(os.path.realpath(top.path)) for top in opened]
        except (OSError, ValueError) as error:  # a link that is removed meanwhile; a name that cannot be encoded
            raise BadHostPath(f"{quoted(host_path)} on this machine cannot be resolved") from error
        # The innermost one: an operator can open a hidden folder of an open one.
        for top in sorted(tops, key=lambda top: len(top.parts), reverse=True):
            if name not in ("", ".", "..") and folder.is_relative_to(top):
                return cls(top, folder.relative_to(top).parts, name)
        raise BadHostPath(
            f"{quoted(host_path)} on this machine is outside the folders that are open for {what_for}: "
            f"{', '.join(top.path for top in opened)}"
        )

    @property
    def hidden(self) -> bool:
        """Whether its name begins with a dot, or that of a folder that it is in."""
        return any(name.startswith(".") for name in (*self.folders, self.name))

    @property
    def path(self) -> str:
        """Its path below the folder."""
        return "/".join((*self.folders, self.name))
