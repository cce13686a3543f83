"""Task groups that raise the error of their body unwrapped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def open_tasks() -> AsyncIterator[TaskGroup]:
    """A task group that is cancelled when its body raises an error, and that then raises this error unwrapped.

    The task groups of anyio wrap even a single error, so callers could not catch it by its type.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:
            failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
