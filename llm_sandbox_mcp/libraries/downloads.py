"""Files of package indexes that were fetched before, kept for later installations; only the gateway writes them."""

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
"""Bytes kept; the least recently used files make room."""


class Downloads:
    """A folder of files by where they came from. Sandboxes get what is in it, and never reach it."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self._folder = folder
        self._limit = limit

    async def find(self, key: bytes) -> anyio.AsyncFile[bytes] | None:
        """The file that was kept under this key, opened; nothing when there is none."""
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
        """Takes the pieces of a file as they pass, and keeps it if all `size` bytes came; a full disk keeps nothing."""
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
            # Who has the last piece may end the installation at once, and with it this.
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


def clear(folder: Path) -> None:
    """Removes the files; one that is being read or written stays for whoever does so."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if not path.name.startswith("."):
            _remove(path)


async def _forget(piece: bytes) -> None:
    """What could not be kept passes all the same."""


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
