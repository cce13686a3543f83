"""Sessions that servers have put aside, by their ids.

Each has one object that only describes it, whose name is the session's id, and others with its data: the first has all,
those that follow have what changed since.
"""

import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from ..base.errors import BadState, StoreFailed, UnknownState, quoted
from ..base.messages import Step
from ..base.principal import Principal
from . import encoding
from .bounds import Bounds, Pruner, space_of
from .manifest import Manifest
from .store import Sink, Source, Store
from .streams import Reader, Writer, begin, read_manifest

_log = logging.getLogger(__name__)

_LIVE = ".live"
"""Ends the name of a description whose session went on: unless it is saved again, what came later is lost."""


class KeptSessions:
    """The states of sessions by their ids; an owner has, sees and replaces only those of their own."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._bounds = bounds
        self._pruner = Pruner(store, bounds, _session_of, _describes)
        self._server, self._numbers = secrets.token_hex(4), itertools.count(1)
        self._undescribed: dict[tuple[str, str], set[str]] = {}
        """Objects with data, by space and session, that no description may have, as when saving was broken off."""

    @asynccontextmanager
    async def writing(
        self, owner: Principal, session_id: str, needed: Callable[[str], bool], *, live: bool = False
    ) -> AsyncIterator[Writer]:
        """A new state of a session, in the place of an older one; `live`: the session goes on after it.

        Afterwards, what is beyond the bounds goes, but not the states of sessions that are `needed`.
        """
        space, name = _space(owner), f"{session_id}.{self._server}.{next(self._numbers)}"
        here, other = (f"{session_id}{_LIVE}", session_id) if live else (session_id, f"{session_id}{_LIVE}")
        before, written = await self._descriptions(space, session_id), list[Manifest]()

        async def complete(data: Sink, manifest: Manifest) -> None:
            self._undescribed.setdefault((space, session_id), set()).add(name)
            await data.complete()
            async with self._store.create(space, here) as sink:
                await (await begin(sink, self._bounds.size)).complete(manifest)
            written.append(manifest)

        async with self._store.create(space, name) as sink:
            await sink.write(encoding.HEAD)
            yield _DataWriter(sink, self._bounds.size, name, complete)
        if not written:
            return
        undescribed = self._undescribed.pop((space, session_id), set())
        if live and other in before:  # the session has not ended
            await self._store.remove(space, other)
        old = {name}.union(undescribed, *(one.objects for _, one in before.values() if one is not None))
        try:
            if not live and other in before:
                await self._store.remove(space, other, before[other][0])
            for left in old - written[0].objects:
                await self._store.remove(space, left)
        except StoreFailed as error:  # the session is saved
            _log.warning("an old state of a session could not be removed: %s", error)
        await self._pruner.prune(space, session_id, needed)

    @asynccontextmanager
    async def reading(self, owner: Principal, session_id: str) -> AsyncIterator[tuple[Reader, bool]]:
        """The state of a session, and whether the session ended with it; `UnknownState` if it was not kept."""
        space = _space(owner)
        async with AsyncExitStack() as scope:
            for name in (session_id, f"{session_id}{_LIVE}"):
                source = await scope.enter_async_context(self._store.open(space, name))
                if source is not None:
                    break
            else:
                raise UnknownState(f"session {quoted(session_id, 40)} was not kept", Step.OPEN_SESSION)
            manifest = await read_manifest(source, session_id)
            found = dict[str, Source | None]()

            async def find(name: str) -> Source | None:
                if _session_of(name) != session_id or _describes(name):
                    return None  # as in a description that was edited
                if name not in found:
                    found[name] = await scope.enter_async_context(self._store.open(space, name))
                return found[name]

            yield Reader(manifest, find), name == session_id

    async def has(self, owner: Principal, session_id: str, manifest: Manifest) -> bool:
        """Whether all is there that a state of a session consists of: another server may have removed it."""
        names = {entry.name for entry in await self._store.entries(_space(owner))}
        return manifest.objects <= names and not names.isdisjoint((session_id, f"{session_id}{_LIVE}"))

    async def ids(self, owner: Principal) -> set[str]:
        """The sessions of an owner."""
        return {_session_of(entry.name) for entry in await self._store.entries(_space(owner)) if _describes(entry.name)}

    async def go_on(self, owner: Principal, session_id: str) -> None:
        """Takes note that a session goes on after its state."""
        await self._store.rename(_space(owner), session_id, f"{session_id}{_LIVE}")

    async def end(self, owner: Principal, session_id: str) -> None:
        """Takes note that a session ends with its state, in which nothing is missing."""
        await self._store.rename(_space(owner), f"{session_id}{_LIVE}", session_id)

    async def remove(self, owner: Principal, session_id: str) -> bool:
        """Removes the state of a session, and its bytes, if there is one; returns whether there was."""
        space = _space(owner)
        self._undescribed.pop((space, session_id), None)
        names = [entry.name for entry in await self._store.entries(space) if _session_of(entry.name) == session_id]
        return any(
            [await self._store.remove(space, name) for name in sorted(names, key=lambda name: not _describes(name))]
        )

    async def use(self, owner: Principal) -> str:
        """How much an owner has, against the bounds, in words."""
        return await self._pruner.use(_space(owner))

    async def _descriptions(self, space: str, session_id: str) -> dict[str, tuple[str, Manifest | None]]:
        """The descriptions of a session that there are, by name: their tags and, if they can be read, what they say."""
        found: dict[str, tuple[str, Manifest | None]] = {}
        for name in (session_id, f"{session_id}{_LIVE}"):
            async with self._store.open(space, name) as source:
                if source is None:
                    continue
                try:
                    found[name] = source.tag, await read_manifest(source, session_id)
                except BadState:
                    found[name] = source.tag, None
        return found


class _DataWriter(Writer):
    """Writes the data of a state into an object of its own, then the object that describes it."""

    def __init__(self, sink: Sink, most: int, name: str, done: Callable[[Sink, Manifest], Awaitable[None]]) -> None:
        super().__init__(sink, most, name)
        self._done = done

    async def complete(self, manifest: Manifest) -> int:
        """Puts the state in the place of an older one, and returns the bytes of its data."""
        await self._flush()
        await self._done(self._sink, manifest)
        return self.size


def _space(owner: Principal) -> str:
    return space_of(owner, "kept")


def _session_of(name: str) -> str:
    return name.split(".", 1)[0]


def _describes(name: str) -> bool:
    return "." not in name or name.endswith(_LIVE)
