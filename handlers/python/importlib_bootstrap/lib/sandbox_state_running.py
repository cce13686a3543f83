"""Names what runs in a session and cannot be saved: threads, tasks and processes."""

from __future__ import annotations

import posix
import sys
from contextlib import suppress


def running(process: int, threads: list, loop) -> list:
    """The losses, in a fork of the session, which has this process, these threads and this event loop."""
    return [*_threads(threads), *_tasks(loop), *_processes(process)]


def _threads(threads: list) -> list:
    found = []
    for thread in threads:
        with suppress(Exception):
            if thread is not sys.modules["threading"].main_thread():
                found.append((str(thread.name), "thread", "it runs in the interpreter"))
    return found


def _tasks(loop) -> list:
    found = []
    with suppress(Exception):
        if loop is not None:
            tasks = sorted(sys.modules["asyncio"].all_tasks(loop), key=lambda task: task.get_name())
            found += [(task.get_name(), "task", "it waits in the interpreter") for task in tasks]
    return found


def _processes(process: int) -> list:
    found = []
    for entry in posix.listdir("/proc"):
        if entry.isdecimal() and int(entry) != posix.getpid():
            with suppress(OSError, ValueError), open(f"/proc/{entry}/stat", errors="replace") as file:
                head, _, rest = file.read().rpartition(")")
                state, above, *_ = rest.split()
                if int(above) == process and state != "Z":
                    found.append((f"process {entry}", "process", f"it runs {head.partition('(')[2]}"))
    return found
