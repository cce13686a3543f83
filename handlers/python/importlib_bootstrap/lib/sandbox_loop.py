"""The event loop of a session, loaded when the code imports asyncio.

The code at the top level of a cell is inside this loop, as in a notebook: `asyncio.create_task(job())` works without
`await`, and the task goes on in later cells. The code can also run other loops, as in a script: for
`asyncio.run(main())`, the loop of the session is set aside.
"""

from __future__ import annotations

import functools
import os
import sys
from _thread import get_ident
from contextvars import copy_context

_MOMENT = 0.05
"""Seconds for the tasks of earlier cells in a cell that does not await: in a notebook they go on between the cells."""


class SessionLoop:
    """Runs the coroutines of cells on one loop, which the functions of the module `asyncio` then know."""

    def __init__(self, asyncio, thread: int) -> None:
        """`thread` is the one that runs the cells."""
        self._asyncio = asyncio
        self._thread = thread
        self._own = self._current = asyncio.new_event_loop()
        self._cell = None
        """The task of a cell that awaits, while it runs."""
        events = asyncio.events
        self._running = events._get_running_loop
        self._set_running = events._set_running_loop
        self._set_current = events.set_event_loop
        asyncio.get_running_loop = events.get_running_loop = self._get_running_loop
        asyncio.set_event_loop = events.set_event_loop = self._set_event_loop
        asyncio.run = asyncio.runners.run = self.aside(asyncio.run)
        runners = [(asyncio.BaseEventLoop, "run_forever"), (asyncio.BaseEventLoop, "run_until_complete")]
        if hasattr(asyncio, "Runner"):  # since 3.11
            runners.append((asyncio.Runner, "run"))
        for kind, name in runners:
            setattr(kind, name, self.aside(getattr(kind, name)))
        os.register_at_fork(after_in_child=self._renew)
        if get_ident() == thread:
            self.begin()

    def begin(self) -> None:
        """Begins a cell: replaces a loop that the code has closed, or runs in another thread."""
        if not _is_free(self._own):
            self._own = self._asyncio.new_event_loop()
        # Set each time, because a new policy has no loop.
        self._set_event_loop(self._current if _is_free(self._current) else None)

    def go_on(self) -> None:
        """Gives tasks of earlier cells a moment."""
        tasks = self._tasks()
        if tasks:
            self._current.run_until_complete(self._asyncio.wait(tasks, timeout=_MOMENT))

    def start(self, coroutine) -> tuple:
        """Makes the coroutine of a cell a task, and returns the context that it will run in too."""
        self.begin()
        context = copy_context()
        own_context = {"context": context} if sys.version_info >= (3, 11) else {}
        return self._current.create_task(coroutine, **own_context), context

    def wait(self, task, context):
        """Runs the task of a cell; an interrupt cancels it first, so that it can clean up."""
        loop = self._current
        self._cell = task
        try:
            return loop.run_until_complete(task)
        except BaseException as error:
            if task.done():
                if not task.cancelled():
                    task.exception()  # retrieved, otherwise asyncio would warn about it later
                raise
            if not isinstance(error, KeyboardInterrupt):
                task.cancel()
                raise
        finally:
            self._cell = None
            for variable, value in context.items():  # a task has a copy of them, but a cell sets those of the session
                if variable.get(None) is not value:
                    variable.set(value)
        task.cancel()
        try:
            loop.run_until_complete(task)
        except self._asyncio.CancelledError as cancelled:
            # Shows where the code was waiting, not where the loop was. Before 3.11 the context has that traceback.
            waiting = cancelled.__context__ or cancelled
            raise KeyboardInterrupt().with_traceback(waiting.__traceback__) from None
        raise KeyboardInterrupt

    def finish(self, wait: bool) -> None:
        """Ends the session: waits for its tasks, or cancels them, as asyncio.run does with those that are left."""
        loop = self._current
        if not _is_free(loop):
            return
        tasks = self._tasks()
        if not wait:
            for task in tasks:
                task.cancel()
        if tasks:
            loop.run_until_complete(self._asyncio.wait(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())

    @property
    def current(self):
        """The loop that the session uses now."""
        return self._current

    def aside(self, function):
        """Wraps a function that runs a loop of its own, so that the code of a cell that awaits can call it too."""

        @functools.wraps(function)
        def run(*args, **kwargs):
            loop, cell = self._running(), self._cell
            if loop is None or cell is None or self._asyncio.current_task(loop) is not cell:
                return function(*args, **kwargs)
            tasks = self._asyncio.tasks
            tasks._leave_task(loop, cell)
            self._set_running(None)
            try:
                return function(*args, **kwargs)
            finally:
                self._set_running(loop)
                tasks._enter_task(loop, cell)

        return run

    def _tasks(self) -> set:
        return self._asyncio.all_tasks(self._current)

    def _get_running_loop(self):
        """Return the running event loop, which is the session's at the top level of a cell."""
        running = self._running()
        if running is None and get_ident() == self._thread and _is_free(self._current):
            running = self._current
        if running is None:
            raise RuntimeError("no running event loop")
        return running

    def _set_event_loop(self, loop) -> None:
        """Set the current event loop; None sets the session's."""
        if get_ident() == self._thread:
            self._current = loop = loop or self._own
        self._set_current(loop)

    def _renew(self) -> None:
        """Gives a child process that the code forked a loop of its own."""
        # The earlier one stays open, because it shares its selector with that of the parent.
        self._inherited = self._own, self._current
        self._own = self._current = self._asyncio.new_event_loop()
        if get_ident() == self._thread:
            self._set_event_loop(self._own)


def _is_free(loop) -> bool:
    return not (loop.is_closed() or loop.is_running())
