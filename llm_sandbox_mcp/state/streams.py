"""Writes states into objects of a store, and reads them again."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.to_thread
from pydantic import ValidationError

from ..base.errors import BadState, CapacityReached, quoted
from ..base.units import format_size
from . import encoding
from .encoding import CHUNK, Damaged, Decoder, Encoder, Sealed, Section
from .manifest import FORMAT, Manifest
from .store import Sink, Source

_SMALL = 32 << 10
"""Bytes up to which a thread would take longer than the work."""
_AT_ONCE = 256 << 10
"""Bytes that are read or written at once, at least if there are as many."""
_SHARED = 32 << 20
"""Bytes of a section that is kept in memory for all who read it."""
_FIRST_READ = 16 << 10
"""Bytes at the end of a state, in which most manifests are."""
_UNSEAL = "the operator can set sessions.key_file in the profile as it was when this was saved, or delete it"

Chunks = AsyncIterator[bytes]


class Writer:
    """Writes one state, section after section."""

    def __init__(self, sink: Sink, most: int, object_name: str = "") -> None:
        """`object_name`: that of the object, if the manifest will be in another one."""
        self._sink = sink
        self._most = most
        self._object = object_name
        self._encoder = Encoder()
        self._held = bytearray()
        self._unwritten = bytearray()
        self.size = len(encoding.HEAD)
        """Bytes in the store so far."""

    def begin(self, section: str) -> None:
        """Begins a section."""
        self._encoder.begin(section, self._object)

    async def add(self, data: bytes) -> None:
        """Adds data to the section, in pieces of any size."""
        self._held += data
        while len(self._held) >= CHUNK:
            await self._write(CHUNK)

    async def end(self) -> Section:
        """Ends the section, and returns where it is."""
        if self._held:
            await self._write(len(self._held))
        return self._encoder.section

    async def complete(self, manifest: Manifest) -> int:
        """Puts the state in the place of an older one of the same name, and returns its bytes in the store."""
        text = manifest.model_dump_json().encode()
        if len(text) > encoding.LARGEST_MANIFEST // 2:
            raise CapacityReached("the session has too many artifacts to be saved", "clear its artifacts first")
        last = self._encoder.end(text)
        await self._flush(last)
        await self._sink.complete()
        return self.size + len(last)

    async def _write(self, length: int) -> None:
        chunk = bytes(self._held[:length])
        del self._held[:length]
        small = length <= _SMALL
        stored = self._encoder.chunk(chunk) if small else await anyio.to_thread.run_sync(self._encoder.chunk, chunk)
        self.size += len(stored)
        if self.size > self._most:
            most = f"{format_size(self._most)} (sessions.saved_size in the profile)"
            raise CapacityReached(
                f"the session is larger than {most}", "delete files and variables that it has too much"
            )
        if len(self._unwritten) + len(stored) < _AT_ONCE:
            self._unwritten += stored
        else:
            await self._flush(stored)

    async def _flush(self, last: bytes = b"") -> None:
        """Passes on what is not written yet."""
        unwritten = bytes(self._unwritten) + last
        self._unwritten.clear()
        await self._sink.write(unwritten)


async def begin(sink: Sink, most: int, object_name: str = "") -> Writer:
    """Begins to write an object, of so many bytes at most."""
    await sink.write(encoding.HEAD)
    return Writer(sink, most, object_name)


class Reader:
    """Reads one state; raises `BadState` where it is not as it was written."""

    def __init__(self, manifest: Manifest, find: Callable[[str], Awaitable[Source | None]]) -> None:
        """`find` finds the object that has a section, by its name."""
        self.manifest = manifest
        self._find = find
        self._near = "", 0, b""
        """What was read last: of which object, from where on."""
        self._sharing: anyio.Lock | None = None
        self._shared: dict[tuple[str, int], list[bytes]] = {}
        """The small sections that were read, if they are shared."""

    def share(self) -> None:
        """Keeps small sections in memory from now on: several read the same ones at once."""
        self._sharing = anyio.Lock()

    async def section(self, section: Section) -> Chunks:
        """The data of a section, each piece checked before it is given."""
        if self._sharing is None or section.size > _SHARED:
            async for data in self._read_section(section):
                yield data
            return
        place = section.object, section.start
        async with self._sharing:
            if place not in self._shared:
                self._shared[place] = [data async for data in self._read_section(section)]
        for data in self._shared[place]:
            yield data

    async def _read_section(self, section: Section) -> Chunks:
        with naming(self.manifest.name):
            source = await self._find(section.object)
            if source is None:
                raise Damaged("a part of it is missing")
            decoder = Decoder(section)
        while decoder.left:
            with naming(self.manifest.name):
                record = await self._read(source, section.object, decoder.at, encoding.RECORD_SIZE)
                length = decoder.length(record)
                stored = await self._read(source, section.object, decoder.at + len(record), length)
                small = length <= _SMALL and section.size <= _SMALL
                data = (
                    decoder.chunk(record, stored)
                    if small
                    else await anyio.to_thread.run_sync(decoder.chunk, record, stored)
                )
            yield data

    async def _read(self, source: Source, name: str, start: int, length: int) -> bytes:
        """Reads from a source, or what was read with the last piece already: sections can be small."""
        near, begin, data = self._near
        if near == name and begin <= start and start + length <= begin + len(data):
            return data[start - begin : start - begin + length]
        data = await source.read(start, max(length, _AT_ONCE))
        self._near = name, start, data
        return data[:length]


async def read_manifest(source: Source, name: str) -> Manifest:
    """What an object says of itself at its end; raises `BadState` for one that no writer has written like this."""
    with naming(name):
        start = max(0, source.size - _FIRST_READ)
        end = await source.read(start, source.size - start)
        try:
            place = encoding.place_of_manifest(end[-encoding.TAIL_SIZE :])
        except Damaged:
            if await source.read(0, len(encoding.SEALED_HEAD)) == encoding.SEALED_HEAD:
                raise Sealed("is encrypted") from None
            raise
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
        known = found.get("format") if isinstance(found, dict) else None
        if type(known) is int and known != FORMAT:  # a bool is no version
            which, step = (
                ("a later", "that version, or a later one") if known > FORMAT else ("an earlier", "that version")
            )
            version = quoted(str(found.get("version")), 20)
            raise BadState(
                f"{quoted(name)} was saved by {which} version of the server, {version}", f"open it with {step}"
            )
        return Manifest.model_validate(found)
    except (ValidationError, ValueError, RecursionError) as error:
        raise Damaged("its description cannot be read") from error


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Names the state in an error about its bytes."""
    try:
        yield
    except Sealed as error:
        raise BadState(f"{quoted(name)} {error}", _UNSEAL) from error
    except Damaged as error:
        raise BadState(f"{quoted(name)} is damaged: {error}", "delete it, and save the session again") from error
