"""Files on this machine that callers can name: only below the roots of the profile, and no link leads out."""

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
from .beneath import open_file, open_folder, write_file

_CHUNK = 1 << 20


@asynccontextmanager
async def open_source(host_path: str, roots: Sequence[str]) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
    """A file's size and its content in chunks; raises `BadHostPath` for anything but a regular file below a root."""
    descriptor, size = await anyio.to_thread.run_sync(_open_source, host_path, roots)
    async with anyio.wrap_file(os.fdopen(descriptor, "rb")) as file:

        async def content() -> AsyncIterator[bytes]:
            left = size
            while left and (chunk := await file.read(min(left, _CHUNK))):
                left -= len(chunk)
                yield chunk

        yield size, content()


@dataclass(frozen=True, slots=True)
class Target:
    """A file below a root that can be written; its folder is open."""

    host_path: str
    folder: int
    name: str

    async def write(self, content: bytes) -> None:
        """Writes the whole file or nothing; `BadHostPath` if it cannot be written."""
        try:
            await anyio.to_thread.run_sync(write_file, self.folder, self.name, content)
        except OSError as error:
            raise BadHostPath(
                f"{quoted(self.host_path)} on this machine cannot be written: {error.strerror}"
            ) from error


@asynccontextmanager
async def open_target(host_path: str, roots: Sequence[str]) -> AsyncIterator[Target]:
    """A new or existing file below a root, for writing; raises `BadHostPath` for a file elsewhere, or a hidden one.

    Its folder must exist. Other programs may obey hidden files and folders, such as `.git/hooks`.
    """
    with ExitStack() as stack:
        yield await anyio.to_thread.run_sync(partial(_open_target, host_path, roots, stack))


def _open_source(host_path: str, roots: Sequence[str]) -> tuple[int, int]:
    place = _Place.find(host_path, roots)
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


def _open_target(host_path: str, roots: Sequence[str], stack: ExitStack) -> Target:
    place = _Place.find(host_path, roots)
    if any(name.startswith(".") for name in (*place.folders, place.name)):
        raise BadHostPath(
            f"{quoted(host_path)} on this machine is hidden; use a file and folders whose names do not begin with a dot"
        )
    try:
        return Target(host_path, stack.enter_context(open_folder(place.root, place.folders)), place.name)
    except OSError as error:
        raise BadHostPath(f"{quoted(host_path)} on this machine cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Place:
    """A file below a root, whose path had no links when it was checked."""

    root: Path
    folders: tuple[str, ...]
    name: str

    @classmethod
    def find(cls, host_path: str, roots: Sequence[str]) -> "_Place":
        if not roots:
            raise BadHostPath(
                "no file on this machine can be used: the profile opens no folder; ask the operator to set files.roots"
            )
        if "\0" in host_path or not os.path.isabs(host_path):
            raise BadHostPath(f"{quoted(host_path)} on this machine must be an absolute path")
        try:
            os.fsencode(host_path)
            # The folder is resolved, but not the file itself: if that is a link, opening it is refused.
            folder, name = Path(os.path.realpath(os.path.dirname(host_path))), os.path.basename(host_path)
            tops = [Path(os.path.realpath(root)) for root in roots]
        except (OSError, ValueError) as error:  # a link that is removed meanwhile; a name that cannot be encoded
            raise BadHostPath(f"{quoted(host_path)} on this machine cannot be resolved") from error
        for top in tops:
            if name not in ("", ".", "..") and folder.is_relative_to(top):
                return cls(top, folder.relative_to(top).parts, name)
        raise BadHostPath(
            f"{quoted(host_path)} on this machine is outside the folders that the profile opens: {', '.join(roots)}"
        )
