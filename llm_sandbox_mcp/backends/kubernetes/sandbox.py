"""A living pod as a sandbox."""

from collections.abc import Sequence
from dataclasses import replace

import anyio

from ...errors import SandboxLost, Unavailable
from ...policy import Policy
from ..base import Usage
from ..containers.container import Streams
from ..containers.sandbox import ContainerSandbox
from .failures import Failure
from .pod import Pod
from .watching import TOLD, Watched


class PodSandbox(ContainerSandbox):
    """A living pod; the cluster tells when it ends, and why."""

    def __init__(
        self,
        pod: Pod,
        agent: Streams,
        policy: Policy,
        image: str,
        prefix: Sequence[str],
        watched: Watched,
        *,
        joined: bool = False,
    ) -> None:
        super().__init__(pod, agent, policy, image, prefix=prefix, joined=joined)
        self._pod = pod
        self._watched = watched
        self._told_by = 0.0
        """When it is no longer waited for; 0 until it is."""
        watched.on_over = self._lose
        if watched.over.is_set():
            self._lose()

    def _lose(self) -> None:
        for process in [*self.processes]:
            process.close()
        self._agent.close()
        if not self._joined and not self._killed:
            # Its session, which would see to that, may be idle for long.
            self._pod.remove_soon()

    async def _failure(self) -> Failure | None:
        """What became of one that is not alive; None where that is not told in time."""
        self._told_by = self._told_by or anyio.current_time() + TOLD
        return await self._watched.told(self._told_by)

    async def ended_at_once(self) -> Unavailable:
        found = await self._failure()
        return found.at_start() if found and found.by_cluster else await super().ended_at_once()

    async def loss(self) -> SandboxLost | None:
        if self.alive:
            return None
        if found := await self._failure():
            return found.later()
        name, unheard = self._watched.name, self._watched.unheard
        return SandboxLost(f"the connection to pod {name} broke: {unheard}") if unheard else None

    async def usage(self) -> Usage:
        used = await super().usage()
        if not self._ended_by_itself:
            return used
        # Nobody counts in a pod that has ended.
        found = await self._failure()
        return replace(used, oom_kills=used.oom_kills + 1) if found and found.out_of_memory else used

    async def kill(self) -> None:
        if self._ended_by_itself and self.begun and not self._joined:
            # With the pod goes what the cluster would say of its end.
            await self._failure()
        await super().kill()

    @property
    def _ended_by_itself(self) -> bool:
        return not self.alive and not self._killed

    @property
    def alive(self) -> bool:
        return super().alive and not self._watched.over.is_set()
