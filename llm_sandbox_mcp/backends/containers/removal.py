"""The removal of a sandbox's container: when its scope ends, or later if the engine does not remove it then."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from ...base.errors import SandboxError
from .sandbox import ContainerSandbox

_log = logging.getLogger(__name__)

_END = 10.0
"""Timeout of a removal, in seconds; after that it is tried again."""
_AGAIN = 5.0
"""Seconds between two attempts to remove a container that its engine did not remove."""


@asynccontextmanager
async def owned(sandbox: ContainerSandbox, tasks: TaskGroup) -> AsyncIterator[None]:
    """Removes the sandbox's container when the scope ends; if that fails, `tasks` try again in the background."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            reason = await _removed(sandbox)
        if reason:
            _log.warning("%s is not removed yet: %s", sandbox.id, reason)
            tasks.start_soon(_remove_later, sandbox)


async def _removed(sandbox: ContainerSandbox) -> str:
    """Removes the container; returns why that failed, empty if it did not."""
    with anyio.move_on_after(_END):
        try:
            await sandbox.end()
        except SandboxError as error:
            return str(error)
        return ""
    return f"no answer within {_END:g} s"


async def _remove_later(sandbox: ContainerSandbox) -> None:
    """Tries again for as long as the server lives; after that, the next server's sweep removes the container."""
    while True:
        await anyio.sleep(_AGAIN)
        if not await _removed(sandbox):
            return
