"""Where all tasks of all event loops of this process are, for a test that hangs: threads alone show loops that wait."""

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
"""What has a process that runs tests print its tasks."""
GRACE = 10.0
"""Seconds for a test to end once its time is up; then its process is ended, and the next one goes on."""


class TimeUp(BaseException):
    """Fails a test whose time is up. None of pytest's own, after which its task would go on, and fixtures wait for it."""


_uncaptured = [2]
"""The descriptor of where nobody captures what is printed."""


def install() -> None:
    """Has the signal print the tasks, where nobody captures what is printed."""
    place = os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1)
    _uncaptured[:] = [place.fileno()]
    signal.signal(SIGNAL, lambda *_: show(place))


def show(to: TextIO) -> None:
    """Prints each task with what it waits for, the innermost last."""
    # The loops' own lists of tasks are told apart by loop, and tests have several.
    tasks = [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]
    print(f"\n=== {len(tasks)} tasks", file=to)
    for task in tasks:
        print(f"task {task.get_name()}", *_places(task.get_coro()), sep="\n  ", file=to)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Iterator[Any]:
    """Of pytest-timeout, whose handler knows of threads only, and fails a test that may still wait for one of them."""
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
    """From a coroutine, or what it waits for, to the innermost."""
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
