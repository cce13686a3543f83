"""Reports to a caller what happens while it waits."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from ..aio.tasks import open_tasks
from ..base.results import StreamName

_INTERVAL = 0.05

_Report = Callable[[float, float | None, str | None], Awaitable[None]]

_log = logging.getLogger(__name__)


class Progress:
    """Collects text and passes it on, at most 20 times a second.

    Text is collected without waiting for the caller, so a caller that reads slowly never slows the code down. The
    profile's limit on output also limits this text.
    """

    def __init__(self, report: _Report, tasks: TaskGroup) -> None:
        """Text is passed on in `tasks`, from the first on: most runs print nothing, and then this costs nothing."""
        self._report = report
        self._tasks = tasks
        self.started = False
        """Whether there was any text."""
        self._pending: list[str] = []
        self._passed = 0
        self._some = anyio.Event()

    async def output(self, _stream: StreamName, text: str) -> None:
        """Takes output of the code."""
        if text:
            self._pending.append(text)
            self._some.set()
            if not self.started:
                self.started = True
                self._tasks.start_soon(self._run)

    async def line(self, text: str) -> None:
        """Takes one line about the server's own work."""
        await self.output("stderr", f"{text}\n")

    async def _run(self) -> None:
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
async def reporting(report: _Report) -> AsyncIterator[Progress]:
    """Reports progress until the block ends; the result contains the output that is left then."""
    async with open_tasks() as tasks:
        progress = Progress(report, tasks)
        yield progress
        if progress.started:  # to cancel what has nothing to do takes as long as some runs
            tasks.cancel_scope.cancel()
