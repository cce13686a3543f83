"""New objects on their way to an object store: as a whole if they are small, else in parts, while they are written."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import anyio
import anyio.from_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from ..base.errors import StoreFailed
from .store import Sink

_log = logging.getLogger(__name__)

PART = 8 << 20
"""Bytes of one part; what has no more is sent as a whole."""
_ABORTING = 0.3
"""Seconds for taking back what was sent of an object that is not completed; a store may keep it, unseen."""

Put = Callable[[bytes | Iterator[bytes]], Awaitable[None]]
"""Puts an object where it belongs; if the iterator fails, nothing stays of it."""


class Upload(Sink):
    """One object: `end` must be called."""

    def __init__(self, put: Put, tasks: TaskGroup, patience: float, silent: StoreFailed) -> None:
        """`patience`: seconds in which one part must be on its way; `silent` is raised if it is not."""
        self._put = put
        self._tasks = tasks
        self._patience = patience
        self._silent = silent
        self._held = bytearray()
        self._parts: _Parts | None = None

    async def write(self, data: bytes) -> None:
        """Adds bytes at the end."""
        self._held += data
        if len(self._held) >= PART:
            if self._parts is None:
                self._parts = _Parts(self._put)
                self._tasks.start_soon(self._parts.run)
            await self._send(self._parts)

    async def complete(self) -> None:
        """Puts the object in the place of an older one."""
        if self._parts is None:
            await self._put(bytes(self._held))
            return
        await self._send(self._parts)
        try:
            with anyio.fail_after(self._patience):
                await self._parts.complete()
        except TimeoutError as error:
            raise self._silent from error

    async def end(self) -> None:
        """Takes back what was sent, unless it is complete."""
        if self._parts is not None:
            await self._parts.end()

    async def _send(self, parts: "_Parts") -> None:
        held, self._held = bytes(self._held), bytearray()
        try:
            with anyio.fail_after(self._patience):
                await parts.send(held)
        except TimeoutError as error:
            raise self._silent from error


class _Broken(Exception):
    """Ends an object that is not completed."""


class _Parts:
    """The parts of one object, which a task of its own sends."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._scope = anyio.CancelScope(shield=True)  # a store forgets the parts only if it is told to
        self._chunks, self._taken = anyio.create_memory_object_stream[bytes](0)
        self._done = anyio.Event()
        self._token = current_token()
        self._whole = False
        self._failure: StoreFailed | None = None

    async def run(self) -> None:
        """Sends what is written, until it is complete."""
        with self._scope:
            try:
                await self._put(self._content())
            except _Broken:
                pass
            except StoreFailed as error:
                self._failure = error
        self._taken.close()
        self._done.set()

    async def send(self, data: bytes) -> None:
        """Passes on what comes next, once the parts before it are on their way."""
        try:
            await self._chunks.send(data)
        except anyio.BrokenResourceError:
            await self.complete()

    async def complete(self) -> None:
        """Waits until the object is there."""
        self._whole = True
        self._chunks.close()
        await self._done.wait()
        if self._failure is not None:
            raise self._failure

    async def end(self) -> None:
        """Takes back what was sent, unless it is complete."""
        self._chunks.close()
        with anyio.move_on_after(_ABORTING, shield=True) as scope:
            await self._done.wait()
        if scope.cancelled_caught:
            _log.warning("the store may keep parts of a saved session that was not completed")
            self._scope.cancel()

    def _content(self) -> Iterator[bytes]:
        """In the thread that sends them."""
        with suppress(anyio.EndOfStream):
            while True:
                yield anyio.from_thread.run(self._taken.receive, token=self._token)
        if not self._whole:
            raise _Broken
