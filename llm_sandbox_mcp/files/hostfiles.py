"""Files on this machine that callers can name: only below folders that the operator opened, and no link leads out."""

import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from ..errors import BadHostPath, quoted
from ..open_folders import OpenFolder
from .beneath import InTheWay, open_file, open_folder
from .drafts import NotOwned, write_file

_CHUNK = 1 << 20


@asynccontextmanager
async def open_source(host_path: str, folders: Sequence[OpenFolder]) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
    """A file's size, and its content in chunks; raises `BadHostPath` for all but regular files below the folders."""
    descriptor, size = await anyio.to_thread.run_sync(_open_source, host_path, folders)
    async with anyio.wrap_file(os.fdopen(descriptor, "rb")) as file:

        async def content() -> AsyncIterator[bytes]:
            left = size
            while left and (chunk := await file.read(min(left, _CHUNK))):
                left -= len(chunk)
                yield chunk

        yield size, content()


@dataclass(frozen=True, slots=True)
class Target:
    """A file in a folder that is open for writing."""

    host_path: str
    folder: int
    name: str

    async def write(self, content: bytes) -> None:
        """Writes the whole file or nothing; `BadHostPath` if it cannot be written."""
        try:
            await anyio.to_thread.run_sync(write_file, self.folder, self.name, content)
        except InTheWay as error:
            raise BadHostPath(
                f"{quoted(self.host_path)} on this machine is a link, a pipe, a device or a folder, and is not replaced"
            ) from error
        except NotOwned as error:
            raise BadHostPath(
                f"{quoted(self.host_path)} on this machine belongs to another user, and its owner cannot be kept"
            ) from error
        except OSError as error:
            raise BadHostPath(
                f"{quoted(self.host_path)} on this machine cannot be written: {error.strerror}"
            ) from error


@asynccontextmanager
async def open_target(host_path: str, folders: Sequence[OpenFolder], *, make: bool = False) -> AsyncIterator[Target]:
    """A new or existing file in a folder that is open for writing; raises `BadHostPath` for one elsewhere, or hidden.

    Its folder must exist, unless `make` creates it. Other programs may obey hidden files and folders, such as
    `.git/hooks`.
    """
    with ExitStack() as stack:
        yield await anyio.to_thread.run_sync(partial(_open_target, host_path, folders, stack, make=make))


def _open_source(host_path: str, folders: Sequence[OpenFolder]) -> tuple[int, int]:
    place = _Place.find(host_path, folders, "reading")
    try:
        with open_folder(place.root, place.folders) as folder:
            descriptor = open_file(folder, place.name)
    except OSError as error:
        raise BadHostPath(f"{quoted(host_path)} on this machine cannot be read: {error.strerror}") from error
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise BadHostPath(f"{quoted(host_path)} on this machine is not a regular file")
    return descriptor, state.st_size


def _open_target(host_path: str, folders: Sequence[OpenFolder], stack: ExitStack, *, make: bool) -> Target:
    place = _Place.find(host_path, [folder for folder in folders if folder.writable], "writing")
    if any(name.startswith(".") for name in (*place.folders, place.name)):
        raise BadHostPath(
            f"{quoted(host_path)} on this machine is hidden; use a file and folders whose names do not begin with a dot"
        )
    try:
        folder = stack.enter_context(open_folder(place.root, place.folders, make=make))
    except OSError as error:
        raise BadHostPath(f"{quoted(host_path)} on this machine cannot be written: {error.strerror}") from error
    return Target(host_path, folder, place.name)


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
                f"no folder on this machine is open for {what_for}; ask the operator to open one (files.folders)"
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
        for top in tops:
            if name not in ("", ".", "..") and folder.is_relative_to(top):
                return cls(top, folder.relative_to(top).parts, name)
        raise BadHostPath(
            f"{quoted(host_path)} on this machine is outside the folders that are open for {what_for}: "
            f"{', '.join(top.path for top in opened)}"
        )
