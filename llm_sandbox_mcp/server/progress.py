"""Reports to a caller what happens while it waits."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from ..results import StreamName
from ..tasks import open_tasks

_INTERVAL = 0.05

_log = logging.getLogger(__name__)


class Progress:
    """Collects text and passes it on, at most 20 times a second.

    Text is collected without waiting for the caller, so a caller that reads slowly never slows the code down. The
    profile's limit on output also limits this text.
    """

    def __init__(self, report: Callable[[float, float | None, str | None], Awaitable[None]]) -> None:
        self._report = report
        self._pending: list[str] = []
        self._passed = 0
        self._some = anyio.Event()

    async def output(self, _stream: StreamName, text: str) -> None:
        """Takes output of the code."""
        if text:
            self._pending.append(text)
            self._some.set()

    async def line(self, text: str) -> None:
        """Takes one line about the server's own work."""
        await self.output("stderr", f"{text}\n")

    async def run(self) -> None:
        """Passes text on until it is cancelled; the result contains the output that is left then."""
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
