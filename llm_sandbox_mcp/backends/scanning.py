"""The files below a directory of a sandbox, read by descriptor from outside it."""

import os
from collections.abc import Iterator, Sequence

from ..policy import Policy
from .base import OWN_ENTRIES, Fullness

_ENTRIES = 10_000
_DEPTH = 32
_SKIPPED = frozenset(("node_modules", "__pycache__"))
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Stamp = tuple[int, ...]


def scan(directory: int, refused: list[str] | None = None) -> dict[str, Stamp]:
    """Path of each regular file, and what differs once it is changed; 10,000 entries and 32 levels at most.

    `refused` is told of folders that this process may not look into.

    Code may change the tree meanwhile. One component is opened at a time, below a descriptor and never through a link:
    a path of several, resolved outside of the sandbox, could be led to the host's own files.
    """
    return dict(_walk(directory, ".", "", iter(range(_ENTRIES)), _DEPTH, refused=refused))


def fullness(directories: Sequence[int], policy: Policy, *, thorough: bool) -> Fullness:
    """How full directories are that are a file system each; only where it is `thorough` are all files looked at."""
    states = [*map(os.fstatvfs, directories)]
    # Where a file may be as large as its folder, a large one leaves no room.
    large = thorough and policy.file_size < policy.disk
    return Fullness(
        disk=any(state.f_bavail == 0 for state in states),
        entries=max((state.f_files - state.f_ffree - OWN_ENTRIES for state in states), default=0),
        large=large and any(_has_file_of(directory, policy.largest_file) for directory in directories),
    )


def _has_file_of(directory: int, size: int) -> bool:
    """Whether a file of so many bytes is below a directory, hidden or not; looks as far as `scan` does."""
    found = _walk(directory, ".", "", iter(range(_ENTRIES)), _DEPTH, hidden=True)
    return any(length >= size for _, (_, _, length, _) in found)


def _walk(
    parent: int,
    name: str,
    prefix: str,
    budget: Iterator[int],
    depth: int,
    *,
    hidden: bool = False,
    refused: list[str] | None = None,
) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    try:
        opened = os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        if refused is not None:
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
                yield from _walk(opened, folder, below, budget, depth - 1, hidden=hidden, refused=refused)
    except OSError:
        return
    finally:
        os.close(opened)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED or not _is_text(name)


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
