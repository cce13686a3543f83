"""Files of this machine that callers may name: only below the roots of the profile, and through no link out."""

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
    """A file's size and its content in portions; raises `BadHostPath` for anything but a regular file below a root."""
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
    """A file below a root that may be written, in a folder that is open."""

    host_path: str
    folder: int
    name: str

    async def write(self, content: bytes) -> None:
        """Writes it whole or not at all; `BadHostPath` when it cannot be written."""
        try:
            await anyio.to_thread.run_sync(write_file, self.folder, self.name, content)
        except OSError as error:
            raise BadHostPath(
                f"{quoted(self.host_path)} on this machine cannot be written: {error.strerror}"
            ) from error


@asynccontextmanager
async def open_target(host_path: str, roots: Sequence[str]) -> AsyncIterator[Target]:
    """A file to write below a root, be it there or not; raises `BadHostPath` for one elsewhere, and for a hidden one.

    Its folder must exist. A hidden file or folder may be what other programs obey, such as `.git/hooks`.
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
            f"{quoted(host_path)} on this machine is hidden; choose a name, and folders, that begin with no dot"
        )
    try:
        return Target(host_path, stack.enter_context(open_folder(place.root, place.folders)), place.name)
    except OSError as error:
        raise BadHostPath(f"{quoted(host_path)} on this machine cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Place:
    """A file below a root, without links in its path when that was looked at."""

    root: Path
    folders: tuple[str, ...]
    name: str

    @classmethod
    def find(cls, host_path: str, roots: Sequence[str]) -> "_Place":
        if not roots:
            raise BadHostPath(
                "no file on this machine may be used: the profile opens no folder; the operator sets files.roots"
            )
        if "\0" in host_path or not os.path.isabs(host_path):
            raise BadHostPath(f"{quoted(host_path)} on this machine must be absolute")
        try:
            os.fsencode(host_path)
            # The folder is resolved, the file itself is not: a link in its place is refused when it is opened.
            folder, name = Path(os.path.realpath(os.path.dirname(host_path))), os.path.basename(host_path)
            tops = [Path(os.path.realpath(root)) for root in roots]
        except (OSError, ValueError) as error:  # a link that goes meanwhile; a name that cannot be encoded
            raise BadHostPath(f"{quoted(host_path)} on this machine cannot be followed") from error
        for top in tops:
            if name not in ("", ".", "..") and folder.is_relative_to(top):
                return cls(top, folder.relative_to(top).parts, name)
        raise BadHostPath(
            f"{quoted(host_path)} on this machine is outside the folders that the profile opens: {', '.join(roots)}"
        )
