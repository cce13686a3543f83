"""The end of a container's sandbox: with its scope, or later where its engine does not let go of it then."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from ...errors import SandboxError
from .sandbox import ContainerSandbox

_log = logging.getLogger(__name__)

_END = 10.0
"""Seconds for its removal; after that it is tried again."""
_AGAIN = 5.0
"""Seconds between two tries to remove what its engine did not let go of."""


@asynccontextmanager
async def owned(sandbox: ContainerSandbox, tasks: TaskGroup) -> AsyncIterator[None]:
    """Removes the sandbox's container with the scope; one that its engine does not let go of then, in `tasks` later."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            obstacle = await _removed(sandbox)
        if obstacle:
            _log.warning("%s is not removed yet: %s", sandbox.id, obstacle)
            tasks.start_soon(_remove_later, sandbox)


async def _removed(sandbox: ContainerSandbox) -> str:
    """Removes it; why that did not work, empty where it did."""
    with anyio.move_on_after(_END):
        try:
            await sandbox.end()
        except SandboxError as error:
            return str(error)
        return ""
    return f"no answer within {_END:g} s"


async def _remove_later(sandbox: ContainerSandbox) -> None:
    """For as long as the server lives; what is there then is left to the next server's sweep."""
    while True:
        await anyio.sleep(_AGAIN)
        if not await _removed(sandbox):
            return
