"""Files of this machine that callers may name: only below the roots of the profile, and through no link out."""

import os
import secrets
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from .errors import BadPath, quoted

_CHUNK = 1 << 20


@asynccontextmanager
async def open_source(host_path: str, roots: Sequence[str]) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
    """A file's size and its content in portions; raises `BadPath` for anything but a regular file below a root."""
    path = await anyio.to_thread.run_sync(_resolve, host_path, roots)
    try:
        # O_NONBLOCK: a FIFO must not hold the thread that opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadPath(f"host_path {quoted(host_path)} cannot be read: {error.strerror}") from error
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise BadPath(f"host_path {quoted(host_path)} is not a regular file")
    async with anyio.wrap_file(os.fdopen(descriptor, "rb")) as file:

        async def content() -> AsyncIterator[bytes]:
            left = state.st_size
            while left and (chunk := await file.read(min(left, _CHUNK))):
                left -= len(chunk)
                yield chunk

        yield state.st_size, content()


def checked_target(host_path: str, roots: Sequence[str]) -> Path:
    """A path below a root that may be written; its folder must exist."""
    return _resolve(host_path, roots)


async def write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    # A name that nobody can foresee, and never one that is there: whoever may write the folder could plant a link.
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        async with await anyio.open_file(temporary, "xb") as file:
            await file.write(content)
        await anyio.Path(temporary).rename(path)
    except OSError as error:
        await anyio.Path(temporary).unlink(missing_ok=True)
        raise BadPath(f"host_path {quoted(str(path))} cannot be written: {error.strerror}") from error


def _resolve(host_path: str, roots: Sequence[str]) -> Path:
    if not roots:
        raise BadPath("host_path is not allowed: the profile opens no folder; the operator sets files.roots")
    if "\0" in host_path or not os.path.isabs(host_path):
        raise BadPath(f"host_path {quoted(host_path)} must be absolute")
    # The folder is resolved, the file itself is not: a link in its place is refused when it is opened.
    path = Path(os.path.realpath(os.path.dirname(host_path)), os.path.basename(host_path))
    if path.name in ("", ".", "..") or not any(path.is_relative_to(os.path.realpath(root)) for root in roots):
        raise BadPath(
            f"host_path {quoted(host_path)} is outside the folders that the profile opens: {', '.join(roots)}"
        )
    if not path.parent.is_dir():
        raise BadPath(f"host_path {quoted(host_path)}: its folder does not exist")
    return path
