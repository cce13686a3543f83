"""Calls from threads into the one event loop of this process, which runs in its own thread.

The loop starts with the first call and ends with the process, which closes everything that a program forgot to close.
It is like anyio's portal, except that a call wakes its caller once and not twice: waking is most of the cost of a call.
"""

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")

_END = 10.0
"""Seconds to wait for a cancelled call, and for everything that is open at the end of the process."""


class Portal:
    """Calls async functions from any thread, also from one that runs an event loop itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: _Inside | None = None
        self._thread: threading.Thread | None = None
        self.generation = 0
        """The number of the loop. Things of an earlier loop, or of the parent process before a fork, are not usable."""
        atexit.register(self.close)
        # A forked child has a copy of this memory, but none of the threads.
        os.register_at_fork(after_in_child=self._forget)

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """The result of an async function. If the caller is interrupted by Ctrl-C, cancels it and waits for its end."""
        call = _Call(function, arguments)
        try:
            self._open().start(call)
            return call.outcome.result()
        except BaseException:
            call.give_up()
            raise
        finally:
            del call  # otherwise the call, its exception and the traceback would form a reference cycle

    def ask(self, function: Callable[[], T]) -> T:
        """The result of a function, run in the loop's thread so that the loop's state does not change meanwhile."""

        async def run() -> T:
            return function()

        return self.call(run)

    def begin(self, function: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Starts an async function in the background."""
        self._open().start(_Call(function, arguments))

    def enter(self, manager: AbstractAsyncContextManager[T]) -> "Held[T]":
        """Enters an async context manager, which stays entered until it is left."""
        return Held(self, self._open(), manager)

    def close(self) -> None:
        """Ends the loop and everything in it; the next call starts another loop."""
        with self._lock:
            inside, thread = self._inside, self._thread
            self._inside = self._thread = None
            self.generation += 1
        if inside is not None and thread is not None:
            inside.loop.call_soon_threadsafe(inside.stopped.set)
            thread.join(_END)

    def _open(self) -> "_Inside":
        with self._lock:
            if self._inside is None:
                ready: Future[_Inside] = Future()
                # A daemon thread: otherwise the process would wait for it before it runs the atexit functions.
                self._thread = threading.Thread(target=_live, args=(ready,), name="sandboxes", daemon=True)
                self._thread.start()
                self._inside = ready.result()
            return self._inside

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._inside = self._thread = None
        self.generation += 1


class _Inside:
    """The running loop, for use from other threads. It is created inside of the loop."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.loop = asyncio.get_running_loop()
        self.stopped = anyio.Event()
        self._tasks = tasks
        self._calls: set[_Call[Any]] = set()

    def start(self, call: "_Call[Any]") -> None:
        """Starts a call; `RuntimeError` if the loop has ended."""
        self._calls.add(call)
        self.loop.call_soon_threadsafe(self._begin, call)

    def _begin(self, call: "_Call[Any]") -> None:
        with contextlib.suppress(RuntimeError):  # the task group has ended; `abandon` handles the call
            self._tasks.start_soon(self._run, call)

    async def _run(self, call: "_Call[Any]") -> None:
        try:
            await call.run()
        finally:
            self._calls.discard(call)

    def abandon(self) -> None:
        """Cancels the calls that never began, once the loop has ended."""
        for call in [*self._calls]:
            call.outcome.cancel()


class _Call(Generic[T]):
    """One call, which its caller can give up at any moment, even before it knows whether the call has begun."""

    _loop: asyncio.AbstractEventLoop
    _scope: anyio.CancelScope

    def __init__(self, function: Callable[..., Awaitable[T]], arguments: tuple[Any, ...]) -> None:
        self.outcome: Future[T] = Future()
        self._function = function
        self._arguments = arguments
        self._lock = threading.Lock()
        self._begun = self._given_up = False
        self._ended = threading.Event()

    async def run(self) -> None:
        with self._lock:
            if self._given_up:
                return
            self._begun = True
            self._loop, self._scope = asyncio.get_running_loop(), anyio.CancelScope()
        try:
            with self._scope:
                self.outcome.set_result(await self._function(*self._arguments))
        except Exception as error:  # raised in the thread that waits for the outcome
            self.outcome.set_exception(error)
        finally:
            self.outcome.cancel()  # no effect if there is a result or an exception
            self._ended.set()

    def give_up(self) -> None:
        """Cancels the call and waits for its end; a call that has not begun will not begin."""
        with self._lock:
            self._given_up = True
            if not self._begun:
                return
        if not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the call with it
                self._loop.call_soon_threadsafe(self._scope.cancel)
            self._ended.wait(_END)


class Held(Generic[T]):
    """An async context manager that has been entered; the same task enters and leaves it."""

    _loop: asyncio.AbstractEventLoop
    _left: anyio.Event

    def __init__(self, portal: Portal, inside: _Inside, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal, self._generation = portal, portal.generation
        entered: Future[T] = Future()
        self._call = _Call(self._hold, (manager, entered))
        self._call.outcome.add_done_callback(lambda _: entered.cancel())  # no effect if it was entered
        try:
            inside.start(self._call)
            self.value = entered.result()
        except BaseException:  # also for Ctrl-C: otherwise nothing would ever leave the context manager
            self._call.give_up()
            raise

    @property
    def here(self) -> bool:
        """Whether it belongs to this process and its current loop; otherwise it is gone, or another process has it."""
        return self._generation == self._portal.generation

    def leave(self) -> None:
        """Leaves it if it is here, and waits until that is done. Raises the errors of leaving it."""
        if self.here:
            self.let_go()
            self._call.outcome.result()

    def let_go(self) -> None:
        """Leaves it soon, without waiting, so that any code can call this, also the garbage collector."""
        if self.here:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the context manager with it
                self._loop.call_soon_threadsafe(self._left.set)

    async def _hold(self, manager: AbstractAsyncContextManager[T], entered: Future[T]) -> None:
        self._loop, self._left = asyncio.get_running_loop(), anyio.Event()
        try:
            async with manager as value:
                entered.set_result(value)
                await self._left.wait()
        except Exception as error:  # raised in the thread that waits: the one that enters, or the one that leaves
            if entered.done():
                raise
            entered.set_exception(error)


def _live(ready: "Future[_Inside]") -> None:
    """Runs the loop, in its thread."""

    async def live() -> None:
        async with anyio.create_task_group() as tasks:
            inside = _Inside(tasks)
            ready.set_result(inside)
            await inside.stopped.wait()
            tasks.cancel_scope.cancel()

    anyio.run(live)
    ready.result().abandon()


portal = Portal()
"""The portal of this process."""
