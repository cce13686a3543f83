"""Tells a caller what happens while it waits."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from ..results import StreamName
from ..tasks import open_tasks

_INTERVAL = 0.05

_log = logging.getLogger(__name__)


class Progress:
    """Gathers text and passes it on, at most 20 times a second.

    Text is gathered without waiting for the caller, so one that reads slowly never slows the code down; the profile's
    limit on output bounds it.
    """

    def __init__(self, report: Callable[[float, float | None, str | None], Awaitable[None]]) -> None:
        self._report = report
        self._pending: list[str] = []
        self._passed = 0
        self._some = anyio.Event()

    async def output(self, _stream: StreamName, text: str) -> None:
        """Takes what code printed."""
        if text:
            self._pending.append(text)
            self._some.set()

    async def line(self, text: str) -> None:
        """Takes one line about work of our own."""
        await self.output("stderr", f"{text}\n")

    async def run(self) -> None:
        """Passes text on until it is cancelled; what is left then stands in the result."""
        try:
            while True:
                await self._some.wait()
                self._some = anyio.Event()
                text = "".join(self._pending)
                self._pending.clear()
                self._passed += len(text)
                await self._report(self._passed, None, text)
                await anyio.sleep(_INTERVAL)
        except Exception:
            _log.exception("progress could not be reported")


@asynccontextmanager
async def reporting(report: Callable[[float, float | None, str | None], Awaitable[None]]) -> AsyncIterator[Progress]:
    """Reports progress until the block ends."""
    progress = Progress(report)
    async with open_tasks() as tasks:
        tasks.start_soon(progress.run)
        yield progress
        tasks.cancel_scope.cancel()
