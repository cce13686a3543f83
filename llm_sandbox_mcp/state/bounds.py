"""How much each owner can have in a store: the oldest go first."""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio

from ..aio.tasks import open_tasks
from ..base.errors import BadState, StoreFailed
from ..base.principal import Principal
from ..base.units import format_size
from .store import Entry, Store
from .streams import read_manifest

AT_ONCE = 8
"""Manifests that are read at once."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one owner can have."""

    number: int
    size: int
    """Bytes in the store."""
    age: float
    """Seconds."""


def space_of(owner: Principal, kind: str = "") -> str:
    """What is an owner's in a store, of each kind: no owner can choose that of another, nor a path."""
    parts = [*filter(None, [kind]), owner.issuer, owner.name]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class Pruner:
    """Removes states that are beyond the bounds."""

    def __init__(
        self,
        store: Store,
        bounds: Bounds,
        of: Callable[[str], str] = lambda name: name,
        describes: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """`of` tells the state that an object of a name belongs to, `describes` whether it has the manifest."""
        self._store = store
        self._bounds = bounds
        self._of = of
        self._describes = describes
        self._created: dict[str, dict[Entry, datetime | None]] = {}
        """When those in a space were saved whose manifests have been read before; None for what cannot be read."""

    async def use(self, space: str) -> str:
        """How much there is, against the bounds, in words."""
        entries = await self._store.entries(space)
        number, size = len({self._of(entry.name) for entry in entries}), sum(entry.size for entry in entries)
        return f"{number} of {self._bounds.number}, {format_size(size)} of {format_size(self._bounds.size)}"

    async def prune(self, space: str, latest: str, needed: Callable[[str], bool] = lambda name: False) -> None:
        """Removes what is beyond the bounds; the latest one stays, whatever the clocks say, and what is needed.

        So does what cannot be read: another server may be able to, or this one at another time.
        """
        try:
            await self._prune(space, latest, needed)
        except StoreFailed as error:  # what is new is saved
            _log.warning("old saved sessions could not be removed: %s", error)

    async def _prune(self, space: str, latest: str, needed: Callable[[str], bool]) -> None:
        entries = await self._store.entries(space)
        known, now, bounds = self._created.get(space, {}), datetime.now(UTC), self._bounds
        created = {entry: known[entry] for entry in entries if entry in known}
        new = [entry for entry in entries if entry not in known and self._describes(entry.name)]
        created |= await self._read(space, new)
        self._created[space] = created
        states, ages = defaultdict[str, list[Entry]](list), dict[str, float]()
        for entry in entries:
            states[self._of(entry.name)].append(entry)
        for entry, at in created.items():
            if at is not None:
                name, age = self._of(entry.name), (now - at).total_seconds()
                ages[name] = min(age, ages.get(name, age))
        number = size = 0
        for name in sorted(ages, key=lambda name: (name != latest, ages[name])):
            number, size = number + 1, size + sum(entry.size for entry in states[name])
            beyond = number > bounds.number or size > bounds.size or ages[name] > bounds.age
            if beyond and name != latest and not needed(name):
                await self._remove(space, states[name])

    async def _remove(self, space: str, entries: list[Entry]) -> None:
        """Removes a state, unless somebody reads it: its manifest first, so that no half of it is found."""
        for entry in sorted(entries, key=lambda entry: not self._describes(entry.name)):
            if not await self._store.remove(space, entry.name, entry.tag):
                return

    async def _read(self, space: str, entries: list[Entry]) -> dict[Entry, datetime | None]:
        found, limiter = dict[Entry, datetime | None](), anyio.CapacityLimiter(AT_ONCE)

        async def read(entry: Entry) -> None:
            try:
                async with limiter, self._store.open(space, entry.name) as source:
                    if source is not None:  # it was not removed meanwhile
                        manifest = await read_manifest(source, entry.name)
                        found[Entry(entry.name, source.size, source.tag)] = manifest.created
            except BadState:
                found[entry] = None
            except StoreFailed:
                pass

        async with open_tasks() as tasks:
            for entry in entries:
                tasks.start_soon(read, entry)
        return found
