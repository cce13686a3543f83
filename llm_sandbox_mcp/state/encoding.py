"""A saved session as bytes, without any I/O: sections of data in chunks, each compressed and checked for itself, and at
the end the manifest, which says what they are.

A reader finds the manifest by the last bytes, then reads sections from their start. Bytes that were cut off, changed or
put together from two states do not match their checksums, and no chunk becomes larger than `CHUNK` when it is unpacked.
"""

import hashlib
import struct

from pydantic import BaseModel, ConfigDict, Field

CHUNK = 1 << 20
"""Bytes of data in one chunk at most."""
HEAD = b"llm-sandbox-mcp state 1\n"
SEALED_HEAD = b"llm-sandbox-mcp sealed 1\n"
"""What an encrypted object begins with, whatever is in it."""
_TAIL = b"\nstate ends here\n"
_PLACE = struct.Struct(">Q")
TAIL_SIZE = _PLACE.size + len(_TAIL)
"""The bytes at the very end that say where the manifest begins."""
_RECORD = struct.Struct(">I16s")
RECORD_SIZE = _RECORD.size
"""The bytes before each chunk: its length and its checksum."""
_LARGEST = CHUNK + (64 << 10)
"""Bytes of a chunk as it is stored at most: compression can add a little."""
LARGEST_MANIFEST = 16 << 20
"""Bytes of a manifest at most."""
_LEVEL = 1
"""Of zstd: faster than most disks, and half the size for most files."""


class Damaged(Exception):
    """Bytes that no writer has written like this; the text is the reason, without a name."""


class Sealed(Damaged):
    """Bytes that are as they were written, maybe, but not for who has this key, or none."""


class Section(BaseModel):
    """One kind of data in a state."""

    model_config = ConfigDict(frozen=True)

    name: str
    object: str = ""
    """The object of the store that it is in; empty for that of its manifest."""
    start: int = Field(ge=0, lt=1 << 60)
    """Where its first chunk begins."""
    chunks: int = Field(ge=0, lt=1 << 40)
    size: int = Field(ge=0, lt=1 << 60)
    """Bytes of data, unpacked."""
    checksum: str
    """Of the checksums of its chunks."""


class Encoder:
    """Makes the bytes of one state, to be written in this order; it takes long, so not on the event loop."""

    def __init__(self) -> None:
        import zstandard

        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._at = len(HEAD)
        self._checksum = _hash()
        self.section: Section
        """The last one that was begun, as far as it is written."""

    def begin(self, name: str, object_name: str = "") -> None:
        """Begins a section in an object; all chunks that follow belong to it."""
        self._checksum = _hash()
        empty = self._checksum.hexdigest()
        self.section = Section(name=name, object=object_name, start=self._at, chunks=0, size=0, checksum=empty)

    def chunk(self, data: bytes) -> bytes:
        """The bytes of one chunk with this data, at most `CHUNK` of it."""
        record = self._record(self._compressor.compress(data))
        self._checksum.update(record[_PLACE.size - 4 : RECORD_SIZE])
        chunks, size = self.section.chunks + 1, self.section.size + len(data)
        update = {"chunks": chunks, "size": size, "checksum": self._checksum.hexdigest()}
        self.section = self.section.model_copy(update=update)
        return record

    def end(self, manifest: bytes) -> bytes:
        """The last bytes of the state."""
        start = self._at
        return self._record(manifest) + _PLACE.pack(start) + _TAIL

    def _record(self, data: bytes) -> bytes:
        record = _RECORD.pack(len(data), _checksum_of(data, self._at)) + data
        self._at += len(record)
        return record


class Decoder:
    """Reads the chunks of one section, in their order. It takes long, so not on the event loop."""

    def __init__(self, section: Section) -> None:
        import zstandard

        self._zstd = zstandard
        self._decompressor = zstandard.ZstdDecompressor()
        self._section = section
        self._checksum = _hash()
        self._size = 0
        self.at = section.start
        """Where the next chunk begins."""
        self.left = section.chunks
        """How many chunks there still are."""
        if not self.left:
            self._check_end()

    def length(self, record: bytes) -> int:
        """How many bytes follow the first ones of a chunk, `RECORD_SIZE` of them."""
        if len(record) != RECORD_SIZE:
            raise Damaged("it ends too early")
        length: int = _RECORD.unpack(record)[0]
        if length > _LARGEST:
            raise Damaged("a chunk is too large")
        return length

    def chunk(self, record: bytes, stored: bytes) -> bytes:
        """The data of the next chunk; raises `Damaged` unless it is exactly what was written there."""
        _check(record, stored, self.at)
        self._checksum.update(record[_PLACE.size - 4 : RECORD_SIZE])
        try:
            size = self._zstd.get_frame_parameters(stored).content_size
            # The size is in the chunk, and memory is taken by it.
            data = self._decompressor.decompress(stored) if size <= CHUNK else None
        except self._zstd.ZstdError as error:
            raise Damaged("a chunk cannot be unpacked") from error
        if data is None:
            raise Damaged("a chunk is too large")
        self.at += len(record) + len(stored)
        self.left -= 1
        self._size += len(data)
        if not self.left:
            self._check_end()
        return data

    def _check_end(self) -> None:
        if (self._size, self._checksum.hexdigest()) != (self._section.size, self._section.checksum):
            raise Damaged("its parts do not belong together")


def place_of_manifest(tail: bytes) -> int:
    """Where the manifest begins, by the last bytes of a state, `TAIL_SIZE` of them."""
    if len(tail) != TAIL_SIZE or not tail.endswith(_TAIL):
        raise Damaged("its end is missing, or is not at the end")
    place: int = _PLACE.unpack_from(tail)[0]
    return place


def manifest_in(data: bytes, place: int) -> bytes:
    """The manifest, from the bytes between its place and the tail."""
    record, manifest = data[:RECORD_SIZE], data[RECORD_SIZE:]
    _check(record, manifest, place)
    return manifest


def _check(record: bytes, stored: bytes, place: int) -> None:
    if len(record) != RECORD_SIZE:
        raise Damaged("it ends too early")
    length, checksum = _RECORD.unpack(record)
    if length != len(stored):
        raise Damaged("it ends too early")
    if checksum != _checksum_of(stored, place):
        raise Damaged("a checksum does not match")


def _checksum_of(data: bytes, place: int) -> bytes:
    """With the place, so that no chunk can be moved."""
    checksum = _hash()
    checksum.update(_PLACE.pack(place))
    checksum.update(data)
    return checksum.digest()


def _hash() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)
