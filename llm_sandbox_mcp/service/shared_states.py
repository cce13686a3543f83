"""Saved sessions whose files many sandboxes share, copy-on-write, where the backend can do that."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ..backends.base import Layer
from ..base.policy import Policy
from ..base.results import Missing
from ..state.manifest import Manifest
from ..state.streams import Reader
from .contents import Contents
from .parts import Parts

_LARGE = 16 << 20
"""Bytes of a state from which its files are shared: fewer are unpacked as soon, and of a copy code can rename each
folder."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A state whose files are in a layer."""

    manifest: Manifest
    layer: Layer
    missing: Sequence[Missing]
    """Files that could not be unpacked."""


class SharedStates:
    """Unpacks states once, for many sandboxes."""

    def __init__(self, parts: Parts, contents: Contents) -> None:
        self._backend = parts.backend
        self._pool = parts.pool
        self._contents = contents

    @asynccontextmanager
    async def of(self, reader: Reader, language: str, policy: Policy) -> AsyncIterator[Shared | None]:
        """A state for sandboxes of a language and policy, while the scope lasts; None if each of them needs a copy.

        Raises `BadState` if the state is damaged or does not fit.
        """
        backend, manifest = await self._backend.chosen(), reader.manifest
        if sum(layer.size for layer in manifest.layers) < _LARGE or await backend.unshared():
            yield None
            return
        lease = await self._pool.acquire(language, policy, warm=False)
        try:
            missing = await self._contents.unpack(lease.sandbox, reader)
            async with backend.kept(lease.sandbox) as layer:
                lease.release()
                yield Shared(manifest, layer, missing) if layer is not None else None
        finally:
            lease.release()
