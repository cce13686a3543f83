"""The files below the folders of a sandbox, read by descriptor from outside it."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from ..policy import Policy
from .base import OWN_ENTRIES, Fullness

CLOSING = 2
"""Threads of one backend that let go of folders; others wait."""
_ENTRIES = 10_000
_DEPTH = 32
_SKIPPED = frozenset(("node_modules", "__pycache__"))
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Stamp = tuple[int, ...]
T = TypeVar("T")


class Folders:
    """Folders of a sandbox, each a file system of its own, by descriptors of this process.

    What code can make long is done in worker threads.
    """

    def __init__(self, descriptors: Iterable[int], closing: anyio.CapacityLimiter) -> None:
        """Takes the descriptors over, the working directory's first; `closing` bounds the threads that close some."""
        self._descriptors = [*descriptors]
        self._closing = closing

    async def list_files(self, refused: list[str] | None = None, *, at_once: int = 0) -> dict[str, Stamp]:
        """Path of each regular file in the first, and what differs once it is changed.

        That is of 10,000 entries and 32 levels at most.

        `refused` is told of folders that this process may not look into. Where all is in memory, so many entries may be
        looked at `at_once`: a worker thread takes as long to begin.

        Code may change the tree meanwhile. One component is opened at a time, below a descriptor and never through a
        link: a path of several, resolved outside of the sandbox, could be led to the host's own files.
        """
        refused = [] if refused is None else refused
        if at_once:
            budget = iter(range(at_once))
            found = _list_files(self._descriptors, budget, refused)
            if next(budget, None) is not None:
                return found
            refused.clear()
        return await self._beside(partial(_list_files, budget=iter(range(_ENTRIES)), refused=refused))

    async def fullness(self, policy: Policy, *, thorough: bool) -> Fullness:
        """How full they are; only where it is `thorough` are all files looked at."""
        states = [*map(os.fstatvfs, self._descriptors)]
        # Where a file may be as large as its folder, a large one leaves no room.
        large = thorough and policy.file_size < policy.disk
        return Fullness(
            disk=any(state.f_bavail == 0 for state in states),
            entries=max((state.f_files - state.f_ffree - OWN_ENTRIES for state in states), default=0),
            large=large and await self._beside(partial(_have_file_of, size=policy.largest_file)),
        )

    async def close(self) -> None:
        """Lets go of them, however long that takes.

        Whoever is the last to let go of a folder in memory frees all that is in it: seconds, where files are many.
        """
        descriptors, self._descriptors = self._descriptors, []
        if descriptors:
            # Shielded, as all that is to be closed.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_close, descriptors, limiter=self._closing)

    async def _beside(self, look: Callable[[list[int]], T]) -> T:
        """What a look in a worker thread finds, by descriptors of its own, for the sandbox may be closed meanwhile."""
        own: list[int] = []
        with suppress(OSError):  # no more can be open: less is seen
            own += map(os.dup, self._descriptors)

        def work() -> T:
            try:
                return look(own)
            finally:
                _close(own)

        # Shielded, for where it is cancelled before it begins nobody would close them.
        with anyio.CancelScope(shield=True):
            found = await anyio.to_thread.run_sync(work)
        return found


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _list_files(folders: Sequence[int], budget: Iterator[int], refused: list[str]) -> dict[str, Stamp]:
    return {name: stamp for folder in folders[:1] for name, stamp in _walk(folder, budget, refused)}


def _have_file_of(folders: Sequence[int], size: int) -> bool:
    """Whether a file of so many bytes is in one of them, hidden or not."""
    return any(
        length >= size
        for folder in folders
        for _, (_, _, length, _) in _walk(folder, iter(range(_ENTRIES)), [], hidden=True)
    )


def _walk(
    parent: int,
    budget: Iterator[int],
    refused: list[str],
    *,
    name: str = ".",
    prefix: str = "",
    depth: int = _DEPTH,
    hidden: bool = False,
) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """The files below a folder, among as many entries as the budget has; `refused` gets what may not be looked into."""
    try:
        opened = os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        refused.append(prefix)
        return
    except OSError:
        return  # gone, or a link by now
    try:
        folders = []
        with os.scandir(opened) as entries:
            for entry in entries:
                if next(budget, None) is None:
                    return
                if not hidden and _is_hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    state = entry.stat(follow_symlinks=False)
                    yield prefix + entry.name, (state.st_ctime_ns, state.st_mtime_ns, state.st_size, state.st_ino)
        if depth:
            for folder in folders:
                below = f"{prefix}{folder}/"
                yield from _walk(opened, budget, refused, name=folder, prefix=below, depth=depth - 1, hidden=hidden)
    except OSError:
        return
    finally:
        os.close(opened)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED or not _is_text(name)


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
