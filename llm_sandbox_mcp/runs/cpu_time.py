"""The bound on the processor time of one run, of all processes of its sandbox together."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from ..backends.base import Sandbox, Usage
from ..policy import Policy
from ..tasks import open_tasks

_STEP = 0.1
"""Seconds between two looks, where almost nothing is left."""


@asynccontextmanager
async def cpu_bound(
    sandbox: Sandbox, before: Usage, limits: Policy, timeout: float, stop: Callable[[], bool]
) -> AsyncIterator[None]:
    """Calls `stop` until it is true, once more processor time is used up than the limits allow.

    `before` is what was used at the start. Where the deadline comes first whatever the code does, there is no timer.
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
        # Between a build and its program there is nothing that could be stopped.
        if left <= 0 and stop():
            return
        # No sooner can it be used up by all processors together.
        await anyio.sleep(max(left / limits.cpus, _STEP))
