"""Sandboxes for sessions: each is owned by one task, for as long as its lease holds."""

import anyio
from anyio.abc import TaskGroup, TaskStatus

from .backends.base import Backend, Sandbox
from .policy import Policy


class Lease:
    """Exclusive use of one sandbox until it is released, which destroys it: a used sandbox never serves anyone else."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._released = anyio.Event()
        self._gone = anyio.Event()

    def release(self) -> None:
        """Lets the sandbox go; it is destroyed beside the caller, who need not wait."""
        self._released.set()

    async def gone(self) -> None:
        """Returns when nothing is left of the released sandbox."""
        await self._gone.wait()


class Pool:
    """Opens sandboxes on one backend. The tasks that own them live in the given group."""

    def __init__(self, backend: Backend, tasks: TaskGroup) -> None:
        self._backend = backend
        self._tasks = tasks

    async def acquire(self, policy: Policy) -> Lease:
        """A new sandbox; raises what the backend raises when it cannot be made."""
        lease: Lease = await self._tasks.start(self._own, policy)
        return lease

    async def _own(self, policy: Policy, *, task_status: TaskStatus[Lease]) -> None:
        lease: Lease | None = None
        try:
            async with self._backend.sandbox(policy) as sandbox:
                lease = Lease(sandbox)
                task_status.started(lease)
                await lease._released.wait()
        finally:
            if lease is not None:
                lease._gone.set()
