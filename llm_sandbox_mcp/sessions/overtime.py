"""The deadline of a run holds for its sandbox, whatever was answered.

Code that shares a process with its runner can forge the answer and go on, and processes that it started go on as well.
They may until the time of the run is up. From then on what they use of the processor is looked at from outside, ever
more seldom, and a sandbox that goes on working is ended.
"""

from collections.abc import Callable
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from ..backends.base import Sandbox
from ..tasks import open_tasks

_FIRST = 0.5
"""Seconds from the deadline to the first judgement; the next comes after as long again, and so on."""
_SELDOM = 60.0
"""Seconds between two of them at most."""
_SHARE = 0.1
"""Of one processor, what waiting processes may use on average."""
_BURST = 0.2
"""Seconds of processor time beyond that; about to end is not going on."""


@dataclass(slots=True, eq=False)
class _Watched:
    sandbox: Sandbox
    end: Callable[[], None]
    due: float
    since: float = 0.0
    """When the first look was, at the deadline; 0 before."""
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
        """Calls `end` once processes of the sandbox go on using the processor after the deadline."""
        self._watched[sandbox] = _Watched(sandbox, end, deadline)
        if deadline < self._asleep_until:
            self._wake.set()

    def forget(self, sandbox: Sandbox) -> None:
        """Stops watching it: it is used again, with a deadline of its own, or is gone."""
        self._watched.pop(sandbox, None)

    async def _serve(self) -> None:
        while True:
            now = anyio.current_time()
            async with open_tasks() as tasks:
                for watched in [watched for watched in self._watched.values() if watched.due <= now]:
                    tasks.start_soon(self._look, watched)
            self._wake = anyio.Event()
            self._asleep_until = min((watched.due for watched in self._watched.values()), default=float("inf"))
            with anyio.CancelScope(deadline=self._asleep_until):
                await self._wake.wait()

    async def _look(self, watched: _Watched) -> None:
        cpu = (await watched.sandbox.usage()).cpu
        if self._watched.get(watched.sandbox) is not watched:
            return  # another run has begun meanwhile
        if cpu is None:  # nobody counts it here
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
