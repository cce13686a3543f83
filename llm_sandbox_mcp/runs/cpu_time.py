"""The limit on the processor time of one run, for all processes of its sandbox together."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from ..aio.tasks import open_tasks
from ..backends.base import Sandbox, Usage
from ..base.policy import Policy

_STEP = 0.1
"""Seconds between two checks, if almost no processor time is left."""


@asynccontextmanager
async def cpu_bound(
    sandbox: Sandbox, before: Usage, limits: Policy, timeout: float, stop: Callable[[], bool]
) -> AsyncIterator[None]:
    """Calls `stop` until it returns true, once the run has used more processor time than the limits allow.

    `before` is the usage at the start. There is no timer if the deadline always comes first.
    """
    if before.cpu is None or timeout * limits.cpus <= limits.cpu_time:
        yield
        return
    async with open_tasks() as tasks:
        tasks.start_soon(_watch, sandbox, before, limits, stop)
        yield
        tasks.cancel_scope.cancel()


async def _watch(sandbox: Sandbox, before: Usage, limits: Policy, stop: Callable[[], bool]) -> None:
    while True:
        left = limits.cpu_time - ((await sandbox.usage()).since(before).cpu or 0)
        # Between a build and the start of its program there is nothing to stop.
        if left <= 0 and stop():
            return
        # Even all processors together cannot use it up sooner.
        await anyio.sleep(max(left / limits.cpus, _STEP))
