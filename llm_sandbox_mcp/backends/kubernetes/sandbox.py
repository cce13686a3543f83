"""A running pod as a sandbox."""

from collections.abc import Sequence
from dataclasses import replace

import anyio

from ...base.errors import SandboxLost, Unavailable
from ...base.messages import Problem
from ...base.policy import Policy
from ..base import SILENT, Usage
from ..containers.container import Streams
from ..containers.sandbox import ContainerSandbox
from .failures import Failure
from .pod import Pod
from .watching import REPORT_TIME, Watched

_REASON = 20.0
"""Seconds for the cluster to report why its node ended the first process: one or two, but more if the node is busy."""
_LAST = 1.0
"""Seconds for the agent to end when it is told to, which takes a tenth of one."""


class PodSandbox(ContainerSandbox):
    """A running pod; the cluster reports when it ends, and why."""

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
        self._deadline = 0.0
        """When waiting for the cluster's report ends; 0 until the wait begins."""
        watched.on_over = self._lose
        if watched.over.is_set():
            self._lose()

    def _lose(self) -> None:
        for process in [*self.processes]:
            process.close()
        self._agent.close()
        if not self._joined and not self._killed:
            # Its session would remove it, but may be idle for long.
            self._pod.remove_soon()

    async def _failure(self) -> Failure | None:
        """How the pod failed if it is not alive; None if the cluster does not report it in time."""
        # No end of a joined pod has to follow the end of the agent there, which code can kill.
        seconds = REPORT_TIME if self._joined else _REASON
        self._deadline = self._deadline or anyio.current_time() + seconds
        return await self._watched.reported_failure(self._deadline)

    async def ended_at_once(self) -> Unavailable:
        found = await self._failure()
        return found.at_start() if found and found.by_cluster else await super().ended_at_once()

    async def loss(self) -> SandboxLost | None:
        if self.alive:
            return None
        if found := await self._failure():
            return found.later()
        name, unheard = self._watched.name, self._watched.unheard
        return SandboxLost(f"the connection to pod {name} broke: {unheard.cause}", unheard.step) if unheard else None

    async def silence(self) -> Problem | None:
        # An answer of the agent comes all the way, so that no request is needed.
        if self.begun:
            with anyio.move_on_after(SILENT):
                if await self._agent.usage() is not None:
                    return None
        return await super().silence()

    async def usage(self) -> Usage:
        used = await super().usage()
        if not self._ended_by_itself:
            return used
        # In a pod that has ended, the agent no longer counts.
        found = await self._failure()
        return replace(used, oom_kills=used.oom_kills + 1) if found and found.out_of_memory else used

    async def kill(self) -> None:
        if self._ended_by_itself and self.begun and not self._joined:
            # Removing the pod removes the cluster's report of its end too, so wait for the report first.
            with anyio.move_on_after(REPORT_TIME):
                await self._failure()
        if self.begun and not self._joined:
            # With the first process all others end, even a stopped one that the node is just starting: a node that
            # waits for such a start cannot kill any, nor tell the agent that its input has ended.
            self._killed = True
            with anyio.move_on_after(_LAST):
                await self._agent.send("end")
                await self._agent.ending(_LAST)
        await super().kill()

    @property
    def _ended_by_itself(self) -> bool:
        return not self.alive and not self._killed

    @property
    def alive(self) -> bool:
        return super().alive and not self._watched.over.is_set()
