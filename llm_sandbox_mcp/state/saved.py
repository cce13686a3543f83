"""The saved sessions of all callers: written as a whole, checked when they are read, and bounded for each caller."""

import logging
import math
import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio

from ..aio.tasks import open_tasks
from ..base.errors import BadState, InvalidArgument, StoreFailed, UnknownState, quoted
from ..base.messages import Note, Step
from ..base.principal import USER, Principal
from ..base.results import SavedSession
from ..profile.sections import SAVED_NAME
from . import encoding
from .bounds import AT_ONCE, Bounds, Pruner, space_of
from .manifest import Manifest
from .store import Entry, Source, Store
from .streams import Reader, Writer, begin, read_manifest

_log = logging.getLogger(__name__)

_REMOVING = 2.0
"""Seconds for the removal of an object that nobody needs."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved session."""

    name: str
    size: int
    """Bytes in the store."""
    manifest: Manifest | None
    """None if it cannot be opened."""
    problem: str = ""
    """Why it cannot."""

    def described(self, notes: Sequence[Note] = ()) -> SavedSession:
        """The session as its owner sees it."""
        manifest = self.manifest
        if manifest is None:
            return SavedSession(self.name, 0.0, self.size, {}, 0, problem=self.problem)
        age = max(0.0, _age(self))
        kept = manifest.variables, manifest.files, manifest.missing
        return SavedSession(self.name, age, self.size, *kept, notes=tuple(notes))


class SavedSessions:
    """All saved sessions; an owner sees, reads and replaces only those of their own."""

    def __init__(self, store: Store, bounds: Bounds, starts: Collection[str] = ()) -> None:
        """`starts` are the names that sessions of this user start from: they stay, however old they are."""
        self._store = store
        self._bounds = bounds
        self._starts = {(space_of(USER), name) for name in starts}
        self._pruner = Pruner(store, bounds)

    @property
    def place(self) -> str:
        """Where they are kept."""
        return self._store.place

    @asynccontextmanager
    async def writing(self, owner: Principal, name: str) -> AsyncIterator[Writer]:
        """A new state, which replaces an older one of that name as a whole, or leaves nothing behind.

        Afterwards, what is too old goes, and the oldest of what is too much, but never what is being read.
        """
        space = space_of(owner)
        async with self._store.create(space, checked_name(name)) as sink:
            yield await begin(sink, self._bounds.size)
        await self._pruner.prune(space, name, lambda name: (space, name) in self._starts)

    @asynccontextmanager
    async def reading(self, owner: Principal, name: str) -> AsyncIterator[Reader]:
        """A state, which stays readable while the scope lasts; `UnknownState` if there is none of that name."""
        async with self._store.open(space_of(owner), checked_name(name)) as source:
            if source is None:
                raise UnknownState(f"no session is saved as {quoted(name)}", Step.SAVED_SESSIONS)

            async def itself(_name: str) -> Source:
                return source

            yield Reader(await read_manifest(source, name), itself)

    async def tag(self, owner: Principal, name: str) -> str:
        """Another one for each state that takes the place of this one; empty if there is none of that name."""
        async with self._store.open(space_of(owner), checked_name(name)) as source:
            return source.tag if source is not None else ""

    async def all(self, owner: Principal) -> Sequence[Saved]:
        """Those of an owner, the latest first."""
        space, limiter = space_of(owner), anyio.CapacityLimiter(AT_ONCE)
        found: list[Saved] = []

        async def read(entry: Entry) -> None:
            try:
                async with limiter, self._store.open(space, entry.name) as source:
                    if source is not None:  # it was not removed meanwhile
                        found.append(Saved(entry.name, source.size, await read_manifest(source, entry.name)))
            except (BadState, StoreFailed) as error:
                found.append(Saved(entry.name, entry.size, None, error.cause))

        async with open_tasks() as tasks:
            for entry in await self._store.entries(space):
                if SAVED_NAME.fullmatch(entry.name):  # others put the rest there
                    tasks.start_soon(read, entry)
        return sorted(found, key=_age)

    async def check(self) -> None:
        """Writes, reads and removes an object that is nobody's; raises `StoreFailed` if that cannot be done."""
        space, name = space_of(Principal("", "check")), secrets.token_hex(8)
        async with self._store.create(space, name) as sink:
            await sink.write(encoding.HEAD)
            await sink.complete()
        try:
            async with self._store.open(space, name) as source:
                try:
                    same = source is not None and await source.read(0, source.size) == encoding.HEAD
                except encoding.Damaged:
                    same = False
                if not same:
                    cause = f"{self.place} does not return what was written there"
                    raise StoreFailed(cause, "set another sessions.store in the profile")
        except BaseException:
            with anyio.move_on_after(_REMOVING, shield=True), suppress(StoreFailed):  # else it would stay there
                await self._store.remove(space, name)
            raise
        await self._store.remove(space, name)

    async def use(self, owner: Principal) -> str:
        """How much an owner has, against the bounds, in words."""
        return await self._pruner.use(space_of(owner))

    async def delete(self, owner: Principal, name: str) -> None:
        """Removes a state, and its bytes; `UnknownState` if there is none of that name."""
        if not await self._store.remove(space_of(owner), checked_name(name)):
            raise UnknownState(f"no session is saved as {quoted(name)}", Step.SAVED_SESSIONS)


def checked_name(name: str) -> str:
    """A name under which a session can be saved; `InvalidArgument` for another."""
    if not SAVED_NAME.fullmatch(name):
        raise InvalidArgument(
            f"name: {quoted(name)} cannot be the name of a saved session",
            "use 1 to 100 ASCII letters, digits, spaces, dots, hyphens and underscores; begin with a letter or digit",
        )
    return name


def _age(saved: Saved) -> float:
    """Seconds since it was saved; one that cannot be opened is older than all others."""
    return (datetime.now(UTC) - saved.manifest.created).total_seconds() if saved.manifest is not None else math.inf
