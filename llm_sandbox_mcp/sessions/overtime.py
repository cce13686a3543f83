"""Applies the deadline of a run to its sandbox, even if the runner has answered.

Code that shares a process with its runner can forge the answer and go on, and processes that it started can go on as
well. They may do so until the deadline of the run. From then on, their processor time is checked from outside, less and
less often, and a sandbox that goes on working is ended.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from ..aio.tasks import open_tasks
from ..backends.base import Sandbox

_log = logging.getLogger(__name__)

_FIRST = 0.5
"""Seconds from the deadline to the first decision; the time since the deadline doubles with each further check."""
_SELDOM = 60.0
"""Seconds between two checks at most."""
_SHARE = 0.1
"""The share of one processor that waiting processes may use on average."""
_BURST = 0.2
"""Seconds of processor time allowed beyond that share, for processes that are about to end."""


@dataclass(slots=True, eq=False)
class _Watched:
    sandbox: Sandbox
    end: Callable[[], None]
    due: float
    since: float = 0.0
    """When the first check was, at the deadline; 0 before."""
    cpu: float = 0.0
    """Seconds of processor time that were used by then."""


class Overtime:
    """Watches sandboxes between their runs, all with one timer, which sleeps until the first deadline."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._watched: dict[Sandbox, _Watched] = {}
        self._asleep_until = float("inf")
        self._wake = anyio.Event()
        tasks.start_soon(self._serve)

    def watch(self, sandbox: Sandbox, deadline: float, end: Callable[[], None]) -> None:
        """Calls `end` if processes of the sandbox go on using the processor after the deadline."""
        self._watched[sandbox] = _Watched(sandbox, end, deadline)
        if deadline < self._asleep_until:
            self._asleep_until = deadline
            self._wake.set()

    def forget(self, sandbox: Sandbox) -> None:
        """Stops watching a sandbox: it is used again, with a new deadline, or it is gone."""
        self._watched.pop(sandbox, None)

    async def _serve(self) -> None:
        while True:
            now = anyio.current_time()
            if due := [watched for watched in self._watched.values() if watched.due <= now]:
                async with open_tasks() as tasks:
                    for watched in due:
                        tasks.start_soon(self._try, watched)
            self._wake = anyio.Event()
            # If the sandbox that it woke for is used again, its next deadline is later: then no run needs to wake it.
            otherwise = self._asleep_until if self._asleep_until > now else float("inf")
            self._asleep_until = min((watched.due for watched in self._watched.values()), default=otherwise)
            with anyio.CancelScope(deadline=self._asleep_until):
                await self._wake.wait()

    async def _try(self, watched: _Watched) -> None:
        try:
            await self._check(watched)
        except Exception:
            _log.exception("the processor time of a sandbox could not be checked")
            watched.due = anyio.current_time() + _SELDOM

    async def _check(self, watched: _Watched) -> None:
        cpu = (await watched.sandbox.usage()).cpu
        if self._watched.get(watched.sandbox) is not watched:
            return  # another run has begun meanwhile
        if cpu is None:  # this engine does not count it
            self.forget(watched.sandbox)
            return
        now = anyio.current_time()
        if not watched.since:
            watched.since, watched.cpu = now, cpu
            watched.due = now + _FIRST
            return
        elapsed = now - watched.since
        if cpu - watched.cpu > _SHARE * elapsed + _BURST:
            self.forget(watched.sandbox)
            watched.end()
        watched.due = now + min(elapsed, _SELDOM)
