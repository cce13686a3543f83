"""Files of package indexes, kept after the download for later installations; only the gateway writes them."""

import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

FOLDER = "downloads"
LIMIT = 2 << 30
"""Maximum bytes; the least recently used files are removed to make room."""


class Downloads:
    """A folder of files by their origin. Sandboxes get their content, but never have access to the folder."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._coming = 0
        """Announced bytes of the files that are being written."""

    async def find(self, key: bytes) -> anyio.AsyncFile[bytes] | None:
        """Opens the file that was kept under this key; None if there is none."""
        path = self._path(key)
        try:
            file = await anyio.open_file(path, "rb")
        except OSError:
            return None
        with suppress(OSError):
            await anyio.to_thread.run_sync(os.utime, path)
        return file

    @asynccontextmanager
    async def keep(self, key: bytes, size: int) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
        """Takes the pieces of a file, and keeps it if all `size` bytes arrived.

        On a full disk, and beyond the limit together with those that are being written, it is not kept.
        """
        if self._coming + size > self._limit:
            yield _forget
            return
        self._coming += size
        try:
            async with self._writing(key, size) as take:
                yield take
        finally:
            self._coming -= size

    @asynccontextmanager
    async def _writing(self, key: bytes, size: int) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
        fresh = self._folder / f".{secrets.token_hex(8)}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = await anyio.open_file(fresh, "xb")
        except OSError:
            yield _forget
            return
        taken = 0

        async def take(piece: bytes) -> None:
            nonlocal taken
            with suppress(OSError):
                await file.write(piece)
                taken += len(piece)

        try:
            yield take
        finally:
            # With the last piece, the package manager may finish, and this task is cancelled.
            with anyio.CancelScope(shield=True):
                await file.aclose()
                if taken == size:
                    await anyio.to_thread.run_sync(self._publish, fresh, self._path(key))
                await anyio.to_thread.run_sync(_remove, fresh)

    def _path(self, key: bytes) -> Path:
        return self._folder / hashlib.sha256(key).hexdigest()

    def _publish(self, fresh: Path, path: Path) -> None:
        with suppress(OSError):
            fresh.rename(path)
            total = 0
            for file in sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True):
                total += file.stat().st_size
                if total > self._limit and file != path:
                    file.unlink(missing_ok=True)


def count(folder: Path) -> int:
    """How many files are kept."""
    return len(_kept(folder))


def clear(folder: Path) -> None:
    """Removes the files; one that is being read stays readable, and one that is being written stays."""
    for path in _kept(folder):
        _remove(path)


def _kept(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []


async def _forget(piece: bytes) -> None:
    """Used instead of `take` if the file cannot be kept."""


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
