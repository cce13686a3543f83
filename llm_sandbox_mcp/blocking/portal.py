"""The way from threads into the one event loop of this process, which runs in a thread of its own.

It starts with the first call and ends with the process: what a program forgot to close is closed then. Like anyio's
portal, but that a call wakes its caller once and not twice, which is most of what a call costs.
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
"""Seconds for what was given up, and for all that is open at the end of the process."""


class Portal:
    """Calls async functions from any thread, also from one that runs an event loop itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: _Inside | None = None
        self._thread: threading.Thread | None = None
        self.generation = 0
        """Of the loop: what belongs to an earlier one, or to that of the process this was forked from, is not here."""
        atexit.register(self.close)
        # A child has the memory of this process and none of its threads.
        os.register_at_fork(after_in_child=self._forget)

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """The result of an async function. An interrupt of the caller, by Ctrl-C, cancels it and waits for its end."""
        call = _Call(function, arguments)
        try:
            self._open().start(call)
            return call.outcome.result()
        except BaseException:
            call.give_up()
            raise
        finally:
            del call  # or it, what it raised and where that was raised would hold each other

    def ask(self, function: Callable[[], T]) -> T:
        """The result of a function of the loop's own thread, where what belongs to the loop does not move meanwhile."""

        async def asked() -> T:
            return function()

        return self.call(asked)

    def begin(self, function: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Starts an async function that nobody waits for."""
        self._open().start(_Call(function, arguments))

    def enter(self, manager: AbstractAsyncContextManager[T]) -> "Held[T]":
        """Enters an async context manager, and holds it until it is left."""
        return Held(self, self._open(), manager)

    def close(self) -> None:
        """Ends the loop with all that lives in it; the next call starts another."""
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
                # A daemon, or the process would wait for it before it runs what is registered for its end.
                self._thread = threading.Thread(target=_live, args=(ready,), name="sandboxes", daemon=True)
                self._thread.start()
                self._inside = ready.result()
            return self._inside

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._inside = self._thread = None
        self.generation += 1


class _Inside:
    """The loop, from outside. Made in it."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.loop = asyncio.get_running_loop()
        self.stopped = anyio.Event()
        self._tasks = tasks
        self._calls: set[_Call[Any]] = set()

    def start(self, call: "_Call[Any]") -> None:
        """Has a call begin; `RuntimeError` where the loop has ended."""
        self._calls.add(call)
        self.loop.call_soon_threadsafe(self._begin, call)

    def _begin(self, call: "_Call[Any]") -> None:
        with contextlib.suppress(RuntimeError):  # the tasks have ended, and `abandon` comes
            self._tasks.start_soon(self._run, call)

    async def _run(self, call: "_Call[Any]") -> None:
        try:
            await call.run()
        finally:
            self._calls.discard(call)

    def abandon(self) -> None:
        """Tells the callers of what never began, once the loop has ended."""
        for call in [*self._calls]:
            call.outcome.cancel()


class _Call(Generic[T]):
    """One call, which its caller may give up at any moment, also before it knows whether it has begun."""

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
        except Exception as error:  # raised where it is waited for
            self.outcome.set_exception(error)
        finally:
            self.outcome.cancel()  # where it has come to nothing
            self._ended.set()

    def give_up(self) -> None:
        """Cancels it, and waits for its end; it does not begin any more where it has not."""
        with self._lock:
            self._given_up = True
            if not self._begun:
                return
        if not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and this with it
                self._loop.call_soon_threadsafe(self._scope.cancel)
            self._ended.wait(_END)


class Held(Generic[T]):
    """An async context manager that was entered; one task enters and leaves it."""

    _loop: asyncio.AbstractEventLoop
    _left: anyio.Event

    def __init__(self, portal: Portal, inside: _Inside, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal, self._generation = portal, portal.generation
        entered: Future[T] = Future()
        self._call = _Call(self._hold, (manager, entered))
        self._call.outcome.add_done_callback(lambda _: entered.cancel())  # where it has come to nothing
        try:
            inside.start(self._call)
            self.value = entered.result()
        except BaseException:  # Ctrl-C too: nobody would have it left
            self._call.give_up()
            raise

    @property
    def here(self) -> bool:
        """Whether it is of this process, and of the loop that this has now; what is not is gone, or another's."""
        return self._generation == self._portal.generation

    def leave(self) -> None:
        """Leaves it, and waits until that is done, where it is here. Raises what leaving it does."""
        if self.here:
            self.let_go()
            self._call.outcome.result()

    def let_go(self) -> None:
        """Has it left soon. Waits for nothing, so that it can be called from any place, such as by the collector."""
        if self.here:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and this with it
                self._loop.call_soon_threadsafe(self._left.set)

    async def _hold(self, manager: AbstractAsyncContextManager[T], entered: Future[T]) -> None:
        self._loop, self._left = asyncio.get_running_loop(), anyio.Event()
        try:
            async with manager as value:
                entered.set_result(value)
                await self._left.wait()
        except Exception as error:  # raised where it is waited for: by who enters, or by who leaves
            if entered.done():
                raise
            entered.set_exception(error)


def _live(ready: "Future[_Inside]") -> None:
    """The life of the loop, in its thread."""

    async def live() -> None:
        async with anyio.create_task_group() as tasks:
            inside = _Inside(tasks)
            ready.set_result(inside)
            await inside.stopped.wait()
            tasks.cancel_scope.cancel()

    anyio.run(live)
    ready.result().abandon()


portal = Portal()
"""The one of this process."""
