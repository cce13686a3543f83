"""What is saved already of each session, so that a checkpoint saves only what has changed since."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ..backends.base import Sandbox
from ..sessions.session import Session
from ..state.encoding import Section
from ..state.kept import KeptSessions
from .contents import Base, Contents, Unready

_LAYERS = 16
"""Layers of a state at most: then it is saved as a whole again, since each of them takes time when it is opened."""
_SMALL_LAYERS = 16 << 20
"""Bytes that the later layers may have in any case."""


@dataclass(slots=True)
class _Track:
    """What is saved already of a session in a sandbox."""

    sandbox: Sandbox
    base: Base | None = None
    ready: Collection[str] = ()
    """The languages whose folders for variables are as the last save left them."""


class Checkpoints:
    """Saves sessions bit by bit."""

    def __init__(self, kept: KeptSessions, contents: Contents, is_live: Callable[[str], bool]) -> None:
        self._kept = kept
        self._contents = contents
        self._is_live = is_live
        self._tracks = WeakKeyDictionary[Session, _Track]()

    async def save(self, session: Session, sandbox: Sandbox, *, live: bool) -> None:
        """Saves what has changed of a session in its sandbox, or all of it where that is better; `live`: it goes on."""
        track = self._tracks.get(session)
        known = track.base.manifest if track is not None and track.base is not None else None
        full = known is not None and _is_full(known.layers, session.policy.disk)
        gone = known is not None and not await self._kept.has(session.owner, session.id, known)
        if track is None or track.sandbox is not sandbox or full or gone:
            track = self._tracks[session] = _Track(sandbox)
        ready, track.ready = track.ready, ()
        base = await self._write(session, sandbox, track, ready, live=live)
        if base is track.base and not live:
            await self._kept.end(session.owner, session.id)
        track.base, track.ready = base, tuple(base.manifest.variables)

    async def _write(
        self, session: Session, sandbox: Sandbox, track: _Track, ready: Collection[str], *, live: bool
    ) -> Base:
        try:
            async with self._kept.writing(session.owner, session.id, self._is_live, live=live) as writer:
                return await self._contents.write_changes(session, sandbox, writer, track.base, ready)
        except Unready:
            if not ready:
                track.base = None  # it cannot be saved bit by bit
            return await self._write(session, sandbox, track, (), live=live)


def _is_full(layers: Sequence[Section], disk: int) -> bool:
    """Whether a state is saved as a whole again: too many layers, or too much that may not be needed any more."""
    later = sum(layer.size for layer in layers[1:])
    return len(layers) >= _LAYERS or later > min(max(layers[0].size, _SMALL_LAYERS), disk // 4)
