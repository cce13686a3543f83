"""Prints where all tasks of all event loops are when a test hangs: stacks of threads only show that a loop waits."""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, TextIO

import pytest

SIGNAL = signal.SIGUSR1
"""The signal that makes a process that runs tests print its tasks."""
GRACE = 10.0
"""Seconds that a test has to end once its time is up; then its process is ended, and another process goes on."""


class TimeUp(BaseException):
    """Fails a test whose time is up.

    Not an exception of pytest: after one of those, the task of the test would go on, and fixtures would wait for it.
    """


_uncaptured = [2]
"""The descriptor of the real stderr, which pytest does not capture."""


def install() -> None:
    """Makes the signal print the tasks to the real stderr, which pytest does not capture."""
    stderr = os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1)
    _uncaptured[:] = [stderr.fileno()]
    signal.signal(SIGNAL, lambda *_: show(stderr))


def show(to: TextIO) -> None:
    """Prints each task with the calls that it waits in, the innermost last."""
    # asyncio lists the tasks of one loop only, and tests have several loops.
    tasks = [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]
    print(f"\n=== {len(tasks)} tasks", file=to)
    for task in tasks:
        print(f"task {task.get_name()}", *_places(task.get_coro()), sep="\n  ", file=to)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Iterator[Any]:
    """Extends pytest-timeout, which only handles threads: prints tasks, and ends a process that waits for a thread."""
    result = yield
    faulthandler.dump_traceback_later(settings.timeout + GRACE, exit=True, file=_uncaptured[0])
    own = signal.getsignal(signal.SIGALRM)

    def handler(number: int, frame: FrameType | None) -> None:
        show(sys.stderr)
        if callable(own):
            try:
                own(number, frame)
            except pytest.fail.Exception as failed:
                raise TimeUp(str(failed)) from None

    signal.signal(signal.SIGALRM, handler)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer() -> Iterator[Any]:
    faulthandler.cancel_dump_traceback_later()
    return (yield)


def _places(waiting: Any) -> Iterator[str]:
    """The places in the code from a coroutine to the innermost call that it waits in."""
    while waiting is not None:
        frame: FrameType | None = _either(waiting, "frame")
        if frame is None:
            yield repr(waiting)
            return
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        waiting = _either(waiting, "await") or _either(waiting, "yieldfrom")


def _either(waiting: Any, what: str) -> Any:
    """An attribute of a coroutine, a generator or an asynchronous generator."""
    return next((value for kind in ("cr", "gi", "ag") if (value := getattr(waiting, f"{kind}_{what}", None))), None)
