"""Saved sessions that only who has the key can read, or make: each object encrypted in blocks, by a key of its own.

The blocks are AES-256-GCM, numbered, and the last one is marked, so that none can be left out, moved or cut off. An
object's key is derived from that of the operator, a random salt, its owner and its name, so that no object can take the
place of another. What it cannot show is that an older object of the same name was put back.
"""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import anyio.to_thread
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..base.errors import ProfileError
from .encoding import SEALED_HEAD, Damaged, Sealed
from .store import Entry, Sink, Source, Store

_KEY = 32
"""Bytes of a key."""
_ID = 8
_SALT = 32
_HEADER = len(SEALED_HEAD) + _ID + _SALT
_BLOCK = 64 << 10
"""Bytes of one block, before it is encrypted."""
_TAG = 16
"""Bytes that a block grows by."""
_SMALL = 256 << 10
"""Bytes up to which a thread would take longer than the work."""
_STEP = "write lines of 64 hexadecimal digits into it, as `openssl rand -hex 32` prints them"


class EncryptedStore(Store):
    """Encrypts what another store keeps: with the first key, and reads what any of them has encrypted."""

    def __init__(self, store: Store, keys: Sequence[bytes]) -> None:
        self.place = f"{store.place}, encrypted"
        self._store = store
        self._keys = {_id_of(key): key for key in keys}
        self._key = keys[0]

    async def entries(self, owner: str) -> Sequence[Entry]:
        """All complete objects of an owner, with their sizes before they were encrypted."""
        return [Entry(one.name, _plain(one.size), one.tag) for one in await self._store.entries(owner)]

    @asynccontextmanager
    async def create(self, owner: str, name: str) -> AsyncIterator[Sink]:
        """A new object, with a salt of its own."""
        salt = secrets.token_bytes(_SALT)
        async with self._store.create(owner, name) as sink:
            await sink.write(SEALED_HEAD + _id_of(self._key) + salt)
            yield _EncryptedSink(sink, _cipher(self._key, salt, owner, name))

    @asynccontextmanager
    async def open(self, owner: str, name: str) -> AsyncIterator[Source | None]:
        """An object to read; one that is not encrypted, or with an unknown key, can only be removed."""
        async with self._store.open(owner, name) as source:
            if source is None:
                yield None
                return
            header = await source.read(0, _HEADER)
            head, key_id, salt = header[: -_ID - _SALT], header[-_ID - _SALT : -_SALT], header[-_SALT:]
            if head != SEALED_HEAD:
                yield _SealedSource(source, "is not encrypted, as all must be with this profile")
            elif key_id not in self._keys:
                yield _SealedSource(source, "is encrypted with another key")
            else:
                yield _EncryptedSource(source, _cipher(self._keys[key_id], salt, owner, name))

    async def remove(self, owner: str, name: str, tag: str = "") -> bool:
        """Removes an object."""
        return await self._store.remove(owner, name, tag)


class _EncryptedSink(Sink):
    """Keeps back a block, since the last one is marked."""

    def __init__(self, sink: Sink, cipher: AESGCM) -> None:
        self._sink = sink
        self._cipher = cipher
        self._held = bytearray()
        self._number = 0

    async def write(self, data: bytes) -> None:
        self._held += data
        whole = (len(self._held) - 1) // _BLOCK
        if whole > 0:
            taken = bytes(self._held[: whole * _BLOCK])
            del self._held[: len(taken)]
            await self._sink.write(await self._encrypted(taken))

    async def complete(self) -> None:
        await self._sink.write(await self._encrypted(bytes(self._held), last=True))
        await self._sink.complete()

    async def _encrypted(self, data: bytes, *, last: bool = False) -> bytes:
        first, blocks = self._number, [data[at : at + _BLOCK] for at in range(0, len(data) or 1, _BLOCK)]
        self._number += len(blocks)

        def encrypt() -> bytes:
            end = self._number - 1
            return b"".join(
                self._cipher.encrypt(_nonce(number, last=last and number == end), block, None)
                for number, block in enumerate(blocks, first)
            )

        return encrypt() if len(data) <= _SMALL else await anyio.to_thread.run_sync(encrypt)


class _EncryptedSource(Source):
    def __init__(self, source: Source, cipher: AESGCM) -> None:
        self._source = source
        self._cipher = cipher
        self.size = _plain(source.size)
        self.tag = source.tag

    async def read(self, start: int, length: int) -> bytes:
        end = min(start + length, self.size)
        if start >= end:
            return b""
        first, after = start // _BLOCK, -(-end // _BLOCK)
        stored = await self._source.read(_HEADER + first * (_BLOCK + _TAG), (after - first) * (_BLOCK + _TAG))
        last = max(0, self.size - 1) // _BLOCK

        def decrypt() -> bytes:
            whole = bytearray()
            try:
                for number in range(first, after):
                    at = (number - first) * (_BLOCK + _TAG)
                    block = stored[at : at + _BLOCK + _TAG]
                    whole.extend(self._cipher.decrypt(_nonce(number, last=number == last), block, None))
            except InvalidTag as error:
                raise Damaged("a part of it is not what was encrypted there") from error
            return bytes(whole[start - first * _BLOCK : end - first * _BLOCK])

        return decrypt() if len(stored) <= _SMALL else await anyio.to_thread.run_sync(decrypt)


class _SealedSource(Source):
    """An object that cannot be read."""

    def __init__(self, source: Source, reason: str) -> None:
        self.size = _plain(source.size)
        self.tag = source.tag
        self._reason = reason

    async def read(self, start: int, length: int) -> bytes:
        raise Sealed(self._reason)


def read_keys(file: Path) -> tuple[bytes, ...]:
    """The keys in a file, one a line; raises `ProfileError`, whose message contains none of them."""
    try:
        lines = file.read_bytes().split()
    except OSError as error:
        raise _wrong(file, f"cannot be read: {error.strerror}") from error
    if not lines:
        raise _wrong(file, "is empty")
    try:
        keys = tuple(bytes.fromhex(line.decode()) for line in lines)
    except ValueError:
        raise _wrong(file, "has a line that is no key") from None
    if any(len(key) != _KEY for key in keys):
        raise _wrong(file, f"has a key that is not {_KEY} bytes")
    return keys


def _wrong(file: Path, reason: str) -> ProfileError:
    return ProfileError(f"{file} {reason}", _STEP, key="sessions.key_file")


def _cipher(key: bytes, salt: bytes, owner: str, name: str) -> AESGCM:
    derived = HKDF(SHA256(), _KEY, salt, b"\0".join([SEALED_HEAD, owner.encode(), name.encode()])).derive(key)
    return AESGCM(derived)


def _id_of(key: bytes) -> bytes:
    return sha256(SEALED_HEAD + key).digest()[:_ID]


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _plain(size: int) -> int:
    """Bytes before they were encrypted, of so many."""
    encrypted = max(0, size - _HEADER)
    return max(0, encrypted - -(-encrypted // (_BLOCK + _TAG)) * _TAG)
