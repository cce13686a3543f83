"""Reads which files are below the folders of a sandbox, from outside and through descriptors."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from ..base.policy import Policy
from ..base.text import is_text
from .base import OWN_ENTRIES, Fullness
from .listing import OUTSIDE, Stamp, kept_outside

CLOSING = 2
"""How many threads of one backend close folders at once; others wait."""
_ENTRIES = 10_000
_OUTSIDE, _AT_ONCE = 1_000, 100
"""Entries that are read in the other folders, and how many of them without a worker thread: these are in memory."""
_TICK = 20_000_000
"""Nanoseconds, more than two ticks of the slowest clock of files."""
_DEPTH = 32
_SKIPPED = frozenset(("node_modules", "__pycache__"))
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

T = TypeVar("T")


class Folders:
    """Folders of a sandbox, each a separate file system, accessed through descriptors of this process.

    Work that code in the sandbox can make slow is done in worker threads.
    """

    def __init__(
        self, descriptors: Iterable[int], closing: anyio.CapacityLimiter, *, own_entries: int = OWN_ENTRIES
    ) -> None:
        """Takes over the descriptors, the working directory's first; `closing` bounds the threads that close them.
        `own_entries` are those that a file system counts although its folder is empty."""
        self._descriptors = [*descriptors]
        self._closing = closing
        self._own_entries = own_entries
        self._times: list[int] = []
        self._outside: dict[str, Stamp] = {}
        self._looked = 0

    async def list_files(self, refused: list[str] | None = None, *, at_once: int = 0) -> dict[str, Stamp]:
        """Path of each regular file in the first folder, with numbers that differ after the file is changed.

        Reads at most 10,000 entries and 32 levels.

        Folders that this process is not allowed to read are added to `refused`. If all files are in memory, up to
        `at_once` entries are read in this thread: starting a worker thread takes as long.

        Code may change the tree meanwhile. So one path component is opened at a time, relative to a descriptor and
        never through a link: a path of several components, resolved outside of the sandbox, could be redirected to the
        host's own files.
        """
        refused = [] if refused is None else refused
        if at_once:
            budget = iter(range(at_once))
            found = _list_files(self._descriptors, budget, refused)
            if next(budget, None) is not None:
                return found
            refused.clear()
        return await self._in_thread(partial(_list_files, budget=iter(range(_ENTRIES)), refused=refused))

    async def new_outside(self) -> list[str]:
        """The files that were made or changed since the last call in the other folders, at most one level below them.

        Only files that code made for somebody to have, by their names. Costs next to nothing if the folders are
        unchanged; reads at most 1,000 entries otherwise.
        """
        times = [os.fstat(descriptor).st_mtime_ns for descriptor in self._others(self._descriptors)]
        if times == self._times and not self._outside:
            return []
        now = time.time_ns()
        # A folder that has just changed can change again without another time.
        self._times = times if all(now - one > _TICK for one in times) else []
        budget = iter(range(_AT_ONCE))
        found = self._list_outside(self._descriptors, budget)
        if next(budget, None) is None:
            found = await self._in_thread(partial(self._list_outside, budget=iter(range(_OUTSIDE))))
        before, self._outside = self._outside, found
        since, self._looked = self._looked - _TICK, now
        # Of more entries than are read, others are read each time: those that are old are not new.
        return [path for path, stamp in found.items() if stamp.ctime > since and before.get(path) != stamp]

    @staticmethod
    def _others(descriptors: Sequence[int]) -> Sequence[int]:
        return descriptors[1 : 1 + len(OUTSIDE)]

    @classmethod
    def _list_outside(cls, descriptors: Sequence[int], budget: Iterator[int]) -> dict[str, Stamp]:
        return {
            f"{folder}/{name}": stamp
            for folder, descriptor in zip(OUTSIDE, cls._others(descriptors), strict=False)
            for name, stamp in _walk(descriptor, budget, [], depth=1)
            if kept_outside(f"{folder}/{name}")
        }

    async def fullness(self, policy: Policy, *, thorough: bool) -> Fullness:
        """How full the folders are; checks the files only if `thorough`."""
        states = [*map(os.fstatvfs, self._descriptors)]
        # If one file may be as large as its folder, a file of that size shows as a full disk, so no search is needed.
        large = thorough and policy.file_size < policy.disk
        return Fullness(
            disk=any(state.f_bavail == 0 for state in states),
            entries=max((state.f_files - state.f_ffree - self._own_entries for state in states), default=0),
            large=large and await self._in_thread(partial(_have_file_of, size=policy.largest_file)),
        )

    async def close(self) -> None:
        """Closes the descriptors, however long that takes.

        Closing the last reference to a folder in memory frees all its contents, which takes seconds for many files.
        """
        descriptors, self._descriptors = self._descriptors, []
        if descriptors:
            # Shielded: everything must be closed.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_close, descriptors, limiter=self._closing)

    async def _in_thread(self, look: Callable[[list[int]], T]) -> T:
        """Runs `look` in a worker thread, on copies of the descriptors because the sandbox may be closed meanwhile."""
        own: list[int] = []
        with suppress(OSError):  # the limit on open files is reached: fewer folders are read
            own += map(os.dup, self._descriptors)

        def work() -> T:
            try:
                return look(own)
            finally:
                _close(own)

        # Shielded: if it were cancelled before the thread begins, nothing would close the copies.
        with anyio.CancelScope(shield=True):
            found = await anyio.to_thread.run_sync(work)
        return found


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _list_files(folders: Sequence[int], budget: Iterator[int], refused: list[str]) -> dict[str, Stamp]:
    return {name: stamp for folder in folders[:1] for name, stamp in _walk(folder, budget, refused)}


def _have_file_of(folders: Sequence[int], size: int) -> bool:
    """Whether one of the folders contains a file, hidden or not, of at least `size` bytes."""
    return any(
        stamp.size >= size for folder in folders for _, stamp in _walk(folder, iter(range(_ENTRIES)), [], hidden=True)
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
) -> Iterator[tuple[str, Stamp]]:
    """The files below a folder, within a budget of entries; adds folders that may not be read to `refused`."""
    try:
        opened = os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        refused.append(prefix)
        return
    except OSError:
        return  # removed meanwhile, or replaced by a link
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
                    yield prefix + entry.name, Stamp.of(entry.stat(follow_symlinks=False))
        if depth:
            for folder in folders:
                below = f"{prefix}{folder}/"
                yield from _walk(opened, budget, refused, name=folder, prefix=below, depth=depth - 1, hidden=hidden)
    except OSError:
        return
    finally:
        os.close(opened)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED or not is_text(name)
