"""The saved sessions of all callers: written as a whole, checked when they are read, and bounded for each caller."""

import hashlib
import json
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
import anyio.to_thread
from pydantic import ValidationError

from ..aio.tasks import open_tasks
from ..base.errors import BadState, CapacityReached, InvalidArgument, StoreFailed, UnknownState, quoted
from ..base.messages import Note, Step
from ..base.principal import Principal
from ..base.results import SavedSession
from ..base.units import format_size
from . import encoding
from .encoding import CHUNK, Damaged, Decoder, Encoder
from .manifest import FORMAT, Manifest
from .store import Entry, Sink, Source, Store

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,98}[A-Za-z0-9_-]|[A-Za-z0-9]")
_FIRST_READ = 16 << 10
"""Bytes at the end of a state, in which most manifests are."""
_AT_ONCE = 8
"""Manifests that are read at once."""

Chunks = AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one owner can have."""

    number: int
    size: int
    """Bytes in the store."""
    age: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved session."""

    name: str
    size: int
    """Bytes in the store."""
    manifest: Manifest | None
    """None if it cannot be opened."""
    tag: str = ""
    """Of its object in the store."""
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


class Writer:
    """Writes one state, section after section."""

    def __init__(self, sink: Sink, most: int) -> None:
        self._sink = sink
        self._most = most
        self._encoder = Encoder()
        self._held = bytearray()
        self.size = len(encoding.HEAD)
        """Bytes in the store so far."""

    def begin(self, section: str) -> None:
        """Begins a section."""
        self._encoder.begin(section)

    async def add(self, data: bytes) -> None:
        """Adds data to the section, in pieces of any size."""
        self._held += data
        while len(self._held) >= CHUNK:
            await self._write(CHUNK)

    async def end(self) -> None:
        """Ends the section."""
        if self._held:
            await self._write(len(self._held))

    async def complete(self, describe: Callable[[Sequence[encoding.Section]], Manifest]) -> Saved:
        """Puts the state in the place of an older one of the same name."""
        manifest = describe(self._encoder.sections)
        text = manifest.model_dump_json().encode()
        if len(text) > encoding.LARGEST_MANIFEST // 2:
            raise CapacityReached("the session has too many artifacts to be saved", "clear its artifacts first")
        last = self._encoder.end(text)
        await self._sink.write(last)
        await self._sink.complete()
        return Saved(manifest.name, self.size + len(last), manifest)

    async def _write(self, length: int) -> None:
        chunk = bytes(self._held[:length])
        del self._held[:length]
        stored = await anyio.to_thread.run_sync(self._encoder.chunk, chunk)
        self.size += len(stored)
        if self.size > self._most:
            most = f"{format_size(self._most)} (sessions.saved_size in the profile)"
            raise CapacityReached(
                f"the session is larger than {most}", "delete files and variables that it has too much"
            )
        await self._sink.write(stored)


class Reader:
    """Reads one state; raises `BadState` where it is not as it was written."""

    def __init__(self, source: Source, manifest: Manifest) -> None:
        self._source = source
        self.manifest = manifest

    async def section(self, name: str) -> Chunks:
        """The data of a section, each piece checked before it is given; nothing if there is no such section."""
        section = self.manifest.section(name)
        if section is None:
            return
        with _naming(self.manifest.name):
            decoder = Decoder(section)
        while decoder.left:
            with _naming(self.manifest.name):
                record = await self._source.read(decoder.at, encoding.RECORD_SIZE)
                length = decoder.length(record)
                stored = await self._source.read(decoder.at + len(record), length)
                data = await anyio.to_thread.run_sync(decoder.chunk, record, stored)
            yield data


class SavedSessions:
    """All saved sessions; an owner sees, reads and replaces only those of their own."""

    def __init__(self, store: Store, bounds: Bounds, kind: str = "") -> None:
        """What has another `kind` is kept apart, and counts by itself."""
        self._store = store
        self._bounds = bounds
        self._kind = kind
        self._created: dict[str, dict[Entry, datetime]] = {}
        """When those in a space were saved that have been read before."""

    @property
    def place(self) -> str:
        """Where they are kept."""
        return self._store.place

    @asynccontextmanager
    async def writing(
        self, owner: Principal, name: str, needed: Callable[[str], bool] = lambda name: False, *, other: str = ""
    ) -> AsyncIterator[Writer]:
        """A new state, which replaces an older one of that name as a whole, or leaves nothing behind.

        Afterwards, the one of the `other` name goes, what is too old goes, and the oldest of what is too much, but
        never what is being read, nor what is `needed`.
        """
        space = self._space(owner)
        async with self._store.create(space, checked_name(name)) as sink:
            await sink.write(encoding.HEAD)
            yield Writer(sink, self._bounds.size)
        try:
            if other:  # before the others are counted
                await self._store.remove(space, checked_name(other))
            await self._prune(space, name, needed)
        except StoreFailed as error:  # the session is saved
            _log.warning("old saved sessions could not be removed: %s", error)

    @asynccontextmanager
    async def reading(self, owner: Principal, name: str) -> AsyncIterator[Reader]:
        """A state, which stays readable while the scope lasts; `UnknownState` if there is none of that name."""
        space = self._space(owner)
        async with self._store.open(space, checked_name(name)) as source:
            if source is None:
                raise UnknownState(f"no session is saved as {quoted(name)}", Step.SAVED_SESSIONS)
            yield Reader(source, await _read_manifest(source, name))

    async def all(self, owner: Principal) -> Sequence[Saved]:
        """Those of an owner, the latest first."""
        return await self._all(self._space(owner))

    async def use(self, owner: Principal) -> str:
        """How much an owner has, against the bounds, in words."""
        entries = await self._store.entries(self._space(owner))
        size = format_size(sum(entry.size for entry in entries))
        return f"{len(entries)} of {self._bounds.number}, {size} of {format_size(self._bounds.size)}"

    async def delete(self, owner: Principal, name: str) -> None:
        """Removes a state, and its bytes; `UnknownState` if there is none of that name."""
        if not await self.remove(owner, name):
            raise UnknownState(f"no session is saved as {quoted(name)}", Step.SAVED_SESSIONS)

    async def remove(self, owner: Principal, name: str) -> bool:
        """Removes a state, and its bytes, if there is one of that name; returns whether there was."""
        return await self._store.remove(self._space(owner), checked_name(name))

    async def rename(self, owner: Principal, name: str, new: str) -> None:
        """Gives a state another name, in the place of what has that; does nothing if there is none."""
        await self._store.rename(self._space(owner), checked_name(name), checked_name(new))

    async def _all(self, space: str) -> list[Saved]:
        return sorted(await self._read(space, await self._store.entries(space)), key=_age)

    async def _read(self, space: str, entries: Iterable[Entry]) -> list[Saved]:
        found: list[Saved] = []
        limiter = anyio.CapacityLimiter(_AT_ONCE)

        async def read(entry: Entry) -> None:
            try:
                async with limiter, self._store.open(space, entry.name) as source:
                    if source is not None:  # it was not removed meanwhile
                        manifest = await _read_manifest(source, entry.name)
                        found.append(Saved(entry.name, source.size, manifest, source.tag))
            except (BadState, StoreFailed) as error:
                found.append(Saved(entry.name, entry.size, None, problem=error.cause))

        async with open_tasks() as tasks:
            for entry in entries:
                tasks.start_soon(read, entry)
        return found

    async def _prune(self, space: str, latest: str, needed: Callable[[str], bool]) -> None:
        """Removes what is beyond the bounds; the latest one stays, whatever the clocks say.

        So does what cannot be read: another server may be able to, or this one at another time.
        """
        entries = await self._store.entries(space)
        known = self._created.get(space, {})
        read = await self._read(space, [entry for entry in entries if entry not in known])
        new = {Entry(one.name, one.size, one.tag): one.manifest.created for one in read if one.manifest is not None}
        self._created[space] = readable = new | {entry: known[entry] for entry in entries if entry in known}
        number = size = 0
        now, bounds = datetime.now(UTC), self._bounds
        for entry in sorted(readable, key=lambda entry: (entry.name != latest, now - readable[entry])):
            number, size = number + 1, size + entry.size
            old = (now - readable[entry]).total_seconds() > bounds.age
            beyond = number > bounds.number or size > bounds.size or old
            if beyond and entry.name != latest and not needed(entry.name):
                await self._store.remove(space, entry.name, entry.tag)

    def _space(self, owner: Principal) -> str:
        """What is an owner's in a store: no owner can choose that of another, nor a path."""
        parts = [*filter(None, [self._kind]), owner.issuer, owner.name]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def checked_name(name: str) -> str:
    """A name under which a session can be saved; `InvalidArgument` for another."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name: {quoted(name)} cannot be the name of a saved session",
            "use 1 to 100 ASCII letters, digits, spaces, dots, hyphens and underscores; begin with a letter or digit",
        )
    return name


def _age(saved: Saved) -> float:
    """Seconds since it was saved; one that cannot be opened is older than all others."""
    return (datetime.now(UTC) - saved.manifest.created).total_seconds() if saved.manifest is not None else math.inf


async def _read_manifest(source: Source, name: str) -> Manifest:
    with _naming(name):
        start = max(0, source.size - _FIRST_READ)
        end = await source.read(start, source.size - start)
        place = encoding.place_of_manifest(end[-encoding.TAIL_SIZE :])
        if not len(encoding.HEAD) <= place <= source.size - encoding.TAIL_SIZE - encoding.RECORD_SIZE:
            raise Damaged("its description is not where it should be")
        if source.size - place > encoding.LARGEST_MANIFEST:
            raise Damaged("its description is too large")
        if place < start:
            end = await source.read(place, source.size - place)
            start = place
        return await anyio.to_thread.run_sync(_parse, end[place - start : -encoding.TAIL_SIZE], place, name)


def _parse(data: bytes, place: int, name: str) -> Manifest:
    try:
        found = json.loads(encoding.manifest_in(data, place))
        if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] > FORMAT:
            raise BadState(
                f"{quoted(name)} was saved by a later version of the server, {quoted(str(found.get('version')), 20)}",
                "open it with that version, or a later one",
            )
        return Manifest.model_validate(found)
    except (ValidationError, ValueError, RecursionError) as error:
        raise Damaged("its description cannot be read") from error


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Names the state in an error about its bytes."""
    try:
        yield
    except Damaged as error:
        raise BadState(f"{quoted(name)} is damaged: {error}", "delete it, and save the session again") from error
