"""The embedded backend where it cannot work: everything says why, and what works instead."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...base.errors import EngineUnavailable
from ...base.policy import Policy
from ..base import Backend, Check, Layer, Sandbox, Zygote

_TITLES = {"darwin": "macOS", "win32": "Windows"}


class UnsupportedSystem(Backend):
    """The backend on a system other than Linux; it imports nothing that only Linux has."""

    name = "embedded"

    async def __aenter__(self) -> "UnsupportedSystem":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def chosen(self) -> Backend:
        raise self._unavailable  # so that no libraries are prepared which no sandbox will use

    async def probe(self) -> list[Check]:
        return [check()]

    async def limits(self) -> Check:
        return check("limits")

    @asynccontextmanager
    async def sandbox(
        self, policy: Policy, image: str = "", zygote: Zygote | None = None, layer: Layer | None = None
    ) -> AsyncIterator[Sandbox]:
        raise self._unavailable
        yield

    async def sweep(self) -> int:
        return 0

    @property
    def _unavailable(self) -> EngineUnavailable:
        return EngineUnavailable(check().detail, check().fix)


def check(name: str = "platform", system: str = sys.platform) -> Check:
    """The row that says why sandboxes cannot exist on this system."""
    return Check(
        name,
        "missing",
        f"bubblewrap needs Linux, and this system is {_TITLES.get(system, system)}",
        "start Docker or Podman and use the profile docker or podman, or run the server on Linux",
    )
