"""Finds the processes of a server, and waits until they have ended."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio


def below(pid: int) -> set[int]:
    """All descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


async def gone(watched: list[int]) -> None:
    """Waits until the processes of all these pidfds have ended."""
    for descriptor in watched:
        await anyio.wait_readable(descriptor)


async def ended(pids: set[int]) -> None:
    """Waits until these processes have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                await anyio.wait_readable(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def watch_children(pid: int) -> Iterator[list[int]]:
    """Yields pidfds of all descendants of a server; fails if there are none."""
    watched = [os.pidfd_open(child) for child in below(pid)]
    try:
        assert watched
        yield watched
    finally:
        for descriptor in watched:
            os.close(descriptor)
