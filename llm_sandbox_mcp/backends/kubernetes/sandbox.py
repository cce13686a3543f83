"""A living pod as a sandbox."""

from collections.abc import Sequence

import anyio

from ...policy import Policy
from ..containers.container import Streams
from ..containers.sandbox import ContainerSandbox
from .pod import Pod
from .watching import Watched

_TOLD = 10.0
"""Seconds for the cluster to tell of a pod's end."""


class PodSandbox(ContainerSandbox):
    """A living pod; the cluster tells when it ends."""

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
        self._watched = watched
        watched.on_over = self._lose

    def _lose(self) -> None:
        for process in [*self.processes]:
            process.close()
        self._agent.close()

    async def why_lost(self) -> str:
        # Its connections end before the cluster tells of its end.
        with anyio.move_on_after(_TOLD):
            await self._watched.over.wait()
        return self._watched.failure

    @property
    def alive(self) -> bool:
        return super().alive and not self._watched.over.is_set()
