"""Task groups whose body's own error comes out as it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def open_tasks() -> AsyncIterator[TaskGroup]:
    """A task group that is cancelled when its body raises, and then raises that error unwrapped.

    anyio's own wraps even a single error, so that callers could not catch it by its type.
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
