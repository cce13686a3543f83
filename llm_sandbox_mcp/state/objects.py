"""Saved sessions in an object store, such as S3: one object for each, below a prefix and its owner's.

Credentials and endpoint are those of the server's environment, as for every program that uses such a store.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio

from ..aio.tasks import open_tasks
from ..base.errors import ProfileError, StoreFailed
from ..base.text import one_line
from .store import Entry, Sink, Source, Store
from .uploads import PART, Upload

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Bucket

_log = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds for one operation, with its retries."""
_RETRYING = timedelta(seconds=10)
_RETRIES = 3
_FIRST_READ = 256 << 10
"""Bytes that are read with an object's size: most objects have no more."""
_PARTS_AT_ONCE = 2
_STEP = "use s3://BUCKET/PREFIX"
_END = ".state"
_SHOWN = 300
"""Characters of what a store says of an error."""


class ObjectStore(Store):
    """Keeps objects in a bucket; what replaces an object does so as a whole, and the later one wins."""

    def __init__(self, place: str) -> None:
        """`place`: such as s3://BUCKET/PREFIX. Raises `ProfileError` without obstore, or for what that refuses."""
        self.place = place
        self._bucket = _bucket(place)
        self._read = Counter[str]()
        """How many of this server read an object: an old one is not removed meanwhile."""

    async def entries(self, owner: str) -> Sequence[Entry]:
        """All complete objects of an owner."""
        import obstore

        with self._failing():
            found = await obstore.list(self._bucket, f"{owner}/").collect_async()
        named = [(one["path"].removeprefix(f"{owner}/"), one) for one in found]
        return [
            Entry(name.removesuffix(_END), one["size"], one["e_tag"] or "")
            for name, one in named
            if name.endswith(_END) and "/" not in name
        ]

    @asynccontextmanager
    async def create(self, owner: str, name: str) -> AsyncIterator[Sink]:
        """A new object, which nobody sees before it is complete."""
        async with open_tasks() as tasks:
            path = _path(owner, name)
            sink = Upload(lambda content: self._put(path, content), tasks, _PATIENCE, self._silent())
            try:
                yield sink
            finally:
                await sink.end()

    @asynccontextmanager
    async def open(self, owner: str, name: str) -> AsyncIterator[Source | None]:
        """An object to read; `StoreFailed` when it is read after another one has taken its place."""
        path = _path(owner, name)
        self._read[path] += 1
        try:
            yield await self._open(path)
        finally:
            self._read[path] -= 1
            self._read += Counter()  # forgets those that nobody reads

    async def remove(self, owner: str, name: str, tag: str = "") -> bool:
        """Removes an object; with `tag`, not if this server reads it: what others read, a bucket does not tell."""
        import obstore

        path = _path(owner, name)
        if tag and self._read[path]:
            return False
        try:
            with self._failing():
                found = await obstore.head_async(self._bucket, path)
                if tag and found["e_tag"] != tag:
                    return False
                await obstore.delete_async(self._bucket, path)
        except FileNotFoundError:
            return False
        return True

    async def get(self, path: str, start: int, length: int, tag: str | None = None) -> tuple[bytes, int, str]:
        """Bytes of an object, its size and its tag; with `tag`, only of that one."""
        import obstore

        with self._failing():
            options: Any = {"range": (start, start + length)} | ({"if_match": tag} if tag else {})
            found = await obstore.get_async(self._bucket, path, options=options)
            return bytes(await found.bytes_async()), found.meta["size"], found.meta["e_tag"] or ""

    async def _put(self, path: str, content: bytes | AsyncIterator[bytes]) -> None:
        import obstore

        in_parts = not isinstance(content, bytes)
        with self._failing(bounded=not in_parts):
            await obstore.put_async(
                self._bucket,
                path,
                content,
                use_multipart=in_parts,
                chunk_size=PART,
                max_concurrency=_PARTS_AT_ONCE,
            )

    async def _open(self, path: str) -> Source | None:
        try:
            return _ObjectSource(self, path, *await self.get(path, 0, _FIRST_READ))
        except FileNotFoundError:
            return None

    @contextmanager
    def _failing(self, *, bounded: bool = True) -> Iterator[None]:
        """Raises what a store says as `StoreFailed`; that an object is not there stays as it is."""
        from obstore import exceptions

        try:
            with anyio.fail_after(_PATIENCE if bounded else None):
                yield
        except TimeoutError as error:
            raise self._silent() from error
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                cause = f"the place for saved sessions, {self.place}, does not exist"
                raise StoreFailed(cause, "make the bucket, or correct sessions.store in the profile") from error
            raise
        except exceptions.PreconditionError as error:
            cause = "the saved session was replaced or removed while it was read"
            raise StoreFailed(cause, "try again") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            cause = f"the place for saved sessions, {self.place}, refuses the server's credentials"
            raise StoreFailed(cause, "check them in the server's environment") from error
        except (exceptions.BaseError, ValueError) as error:
            _log.debug("object store: %s", error)
            cause = one_line(str(error).partition("\n")[0])[:_SHOWN]
            raise StoreFailed(
                f"the place for saved sessions, {self.place}, cannot be used: {cause}",
                "check sessions.store in the profile, and endpoint and credentials in the server's environment",
            ) from error

    def _silent(self) -> StoreFailed:
        return StoreFailed(f"the place for saved sessions, {self.place}, does not answer", "try again later")


class _ObjectSource(Source):
    def __init__(self, store: ObjectStore, path: str, first: bytes, size: int, tag: str) -> None:
        self._store = store
        self._path = path
        self._first = first
        self.size = size
        self.tag = tag

    async def read(self, start: int, length: int) -> bytes:
        end = min(start + length, self.size)
        if start >= end:
            return b""
        if end <= len(self._first):
            return self._first[start:end]
        try:
            found, _, tag = await self._store.get(self._path, start, end - start, self.tag)
        except FileNotFoundError:
            tag = ""
        if tag != self.tag:  # some stores ignore the condition
            raise StoreFailed("the saved session was replaced or removed while it was read", "try again")
        return found


def _path(owner: str, name: str) -> str:
    return f"{owner}/{name}{_END}"


def _bucket(place: str) -> "Bucket":
    try:
        from obstore import exceptions
        from obstore.store import from_url
    except ImportError as error:
        step = "pip install 'llm-sandbox-mcp[object-store]'"
        raise ProfileError(f"{place} needs obstore, which is not installed", step, key="sessions.store") from error
    try:
        return from_url(
            place,
            # An endpoint without TLS is one that the operator has named.
            client_options={"allow_http": True, "timeout": timedelta(seconds=_PATIENCE)},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRYING},
        )
    except (exceptions.BaseError, ValueError) as error:
        cause = one_line(str(error).partition("\n")[0])[:_SHOWN]
        raise ProfileError(f"{place} cannot be used: {cause}", _STEP, key="sessions.store") from error
