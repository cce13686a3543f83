"""A pod that somebody else made, as a sandbox: used as it is by one session at a time, and never removed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from ...aio.tasks import open_tasks
from ...base.errors import CapacityReached, SandboxLost, StartFailed
from ...base.policy import Policy
from ..base import Sandbox
from ..containers.agent import AGENT, Packed
from ..containers.removal import owned
from .api import Api, Refused
from .channels import PERL
from .pod import Pod
from .refusals import as_error
from .sandbox import PodSandbox
from .watching import Watch, Watched, of_name

_LEAVING = 1.0
"""Seconds within which a session that ends starts to release its pod."""


class Joining:
    """One pod, given by its name."""

    def __init__(self, name: str, prefix: Sequence[str], handlers: Packed) -> None:
        self._name = name
        self._prefix = prefix
        self._handlers = handlers
        self._used = False
        self._leaving = False
        """Whether the session that uses the pod is about to release it."""
        self._left = anyio.Event()

    @asynccontextmanager
    async def sandbox(self, api: Api, policy: Policy, image: str, tasks: TaskGroup) -> AsyncIterator[Sandbox]:
        """The pod as a sandbox, for as long as the scope lasts; `tasks` read the output of its processes.

        Raises `CapacityReached` while another session uses the pod, and `StartFailed` if it is not running.
        """
        async with self._turn(), open_tasks() as watching:
            watched = await self._watched(api, watching)
            pod = Pod(api, self._name, tasks, container=watched.container)
            try:
                agent = await pod.join(["/bin/sh", "-c", AGENT, "sh", "joined", PERL])
            except SandboxLost as lost:
                raise await watched.never_used(lost) from lost
            sandbox = PodSandbox(pod, agent, policy, image, self._prefix, watched, joined=True)
            async with owned(sandbox, tasks):
                await sandbox.begin(self._handlers)
                try:
                    yield sandbox
                finally:
                    self._leaving = True
            watching.cancel_scope.cancel()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        # A session whose lease has ended may not have set `_leaving` yet.
        with anyio.move_on_after(_LEAVING):
            while self._used:
                await self._left.wait()
        while self._used:
            if not self._leaving:
                raise CapacityReached(f"pod {self._name} serves one session at a time", "close the other session")
            await self._left.wait()
        self._used, self._leaving = True, False
        try:
            yield
        finally:
            self._used = False
            self._left.set()
            self._left = anyio.Event()

    async def _watched(self, api: Api, tasks: TaskGroup) -> Watched:
        """The watched state of the pod, for as long as the tasks run."""
        watch = Watch(api, of_name(self._name))
        watched = watch.expect(self._name)
        try:
            await watch.begin()
        except Refused as refused:
            raise as_error(refused, f"find pod {self._name}", api) from refused
        if watched.failure:
            raise watched.failure.at_start()
        if not watched.ready.is_set():
            raise StartFailed(f"pod {self._name} is not running in namespace {api.namespace}", "start it")
        tasks.start_soon(watch.run)
        return watched
