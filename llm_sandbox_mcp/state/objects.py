"""Saved sessions in an object store, such as S3: one object for each, below a prefix and its owner's.

Credentials and endpoint are those of the server's environment, as for every program that uses such a store.
"""

import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import anyio
import obstore
from obstore import exceptions
from obstore.store import from_url

from ..aio.tasks import open_tasks
from ..aio.threads import in_thread
from ..base.errors import ProfileError, StoreFailed
from ..base.text import one_line
from .store import Entry, Sink, Source, Store
from .uploads import PART, Upload

if TYPE_CHECKING:
    from obstore import BytesStream, GetResult, ObjectMeta
    from obstore.store import ObjectStore as Bucket

_log = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 30.0
"""Seconds for one operation, with its retries."""
_RETRYING = timedelta(seconds=10)
_RETRIES = 3
_AT_ONCE = 100
"""Requests that read, and as many that write, under way at once; those that hang count until they end by themselves."""
_FIRST_READ = 256 << 10
"""Bytes that are read with an object's size: most objects have no more."""
_AHEAD = 2 << 20
"""Bytes that are read at once later: a request takes as long as this."""
_PARTS_AT_ONCE = 2
_STEP = "use s3://BUCKET/PREFIX, with credentials in the server's environment"
_REPLACED = "the saved session was replaced or removed while it was read", "try again"
_NO_BUCKET = "NoSuchBucket"
_FORBIDDEN = "403 Forbidden"
_ASKS_FOR_A_ROLE = re.compile(r"performing (?:GET|PUT) \S+/latest/(?:api/token|meta-data)")
"""A request for credentials to the machine's cloud, which follows if the environment has none."""
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_PANIC = "PanicException"
"""What the library raises for an endpoint that is no URL, and what else it does not expect; nobody can import it."""
_NO_RANGE = "non-partial response"
_END = ".state"
_SHOWN = 300
"""Characters of what a store says of an error."""


class ObjectStore(Store):
    """Keeps objects in a bucket; what replaces an object does so as a whole, and the later one wins."""

    def __init__(self, place: str) -> None:
        """`place`: such as s3://BUCKET/PREFIX. Raises `ProfileError` for what obstore refuses."""
        self.place = place
        self._bucket = _bucket(place)
        self.without_ranges = False
        """Whether the store answers no requests for a part of an object, as far as that is known."""
        self._read = Counter[str]()
        """How many of this server read an object: an old one is not removed meanwhile."""
        self._reading, self._writing = anyio.CapacityLimiter(_AT_ONCE), anyio.CapacityLimiter(_AT_ONCE)
        self._late = WeakValueDictionary[str, anyio.Event]()
        """Changes that nobody waits for any more, by their paths, until they are done."""

    async def entries(self, owner: str) -> Sequence[Entry]:
        """All complete objects of an owner."""
        found = await self.ask(lambda bucket: obstore.list(bucket, f"{owner}/").collect())
        named = [(one["path"].removeprefix(f"{owner}/"), one) for one in found]
        return [
            Entry(name.removesuffix(_END), one["size"], _tag(one))
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
        path = _path(owner, name)
        if tag and self._read[path]:
            return False
        try:
            found = await self.ask(lambda bucket: obstore.head(bucket, path))
            if tag and _tag(found) != tag:
                return False
            await self._change(path, lambda bucket: obstore.delete(bucket, path))
        except FileNotFoundError:
            return False
        return True

    async def ask(self, request: Callable[["Bucket"], T]) -> T:
        """What the bucket answers."""
        with self.failing():
            return await in_thread(partial(request, self._bucket), self._reading)

    async def _change(self, path: str, request: Callable[["Bucket"], object], *, bounded: bool = True) -> None:
        """Waits for what was given up before: else it could take the place of what comes later."""
        with self.failing(bounded=bounded):
            if late := self._late.get(path):
                await late.wait()
            await in_thread(partial(request, self._bucket), self._writing, partial(self._late.__setitem__, path))

    async def _put(self, path: str, content: bytes | Iterator[bytes]) -> None:
        def put(bucket: "Bucket") -> object:
            return obstore.put(
                bucket, path, content, use_multipart=in_parts, chunk_size=PART, max_concurrency=_PARTS_AT_ONCE
            )

        in_parts = not isinstance(content, bytes)
        try:
            await self._change(path, put, bounded=not in_parts)
        except FileNotFoundError as error:  # the parts: the bucket has removed them, or an answer was lost
            raise self._failed(error) from error

    async def _open(self, path: str) -> Source | None:
        def begin(bucket: "Bucket") -> tuple["ObjectMeta", bytes]:
            # Without a range: a store can answer one that has all as if there were none, which the library refuses.
            found, first = obstore.get(bucket, path), bytearray()
            for chunk in found.stream(_FIRST_READ):
                first += chunk
                if len(first) >= _FIRST_READ:
                    break
            return found.meta, bytes(first)

        try:
            meta, first = await self.ask(begin)
        except FileNotFoundError:
            return None
        return _ObjectSource(self, path, first, meta["size"], _tag(meta))

    @contextmanager
    def failing(self, *, bounded: bool = True) -> Iterator[None]:
        """Raises what a store says as `StoreFailed`; that an object is not there stays as it is."""
        try:
            with anyio.fail_after(_PATIENCE if bounded else None):
                yield
        except TimeoutError as error:
            raise self._silent() from error
        except FileNotFoundError as error:
            if _NO_BUCKET not in str(error):
                raise
            raise self._failed(error) from error
        except BaseException as error:
            if not isinstance(error, (exceptions.BaseError, ValueError)) and type(error).__name__ != _PANIC:
                raise
            raise self._failed(error) from error

    def _failed(self, error: BaseException) -> StoreFailed:
        text = str(error)
        _log.debug("object store: %s", text)
        if _NO_BUCKET in text:
            step = "make the bucket, or correct sessions.store in the profile"
            return StoreFailed(f"the place for saved sessions, {self.place}, does not exist", step)
        if _ASKS_FOR_A_ROLE.search(text):
            cause = f"there are no credentials for the place for saved sessions, {self.place}"
            step = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the server's environment"
            return StoreFailed(cause, step)
        cause = f"the place for saved sessions, {self.place}, cannot be used: {_shown(text)}"
        refused = isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError))
        if refused or _FORBIDDEN in text:
            return StoreFailed(cause, "check the credentials in the server's environment")
        step = "check sessions.store in the profile, and AWS_ENDPOINT_URL=https://HOST in the server's environment"
        return StoreFailed(cause, step)

    def _silent(self) -> StoreFailed:
        return StoreFailed(f"the place for saved sessions, {self.place}, does not answer", "try again later")


class _ObjectSource(Source):
    def __init__(self, store: ObjectStore, path: str, first: bytes, size: int, tag: str) -> None:
        self._store = store
        self._path = path
        self._near, self._near_at = first, 0
        """What was read last, and where it comes from."""
        self.size = size
        self.tag = tag
        self._whole: _Whole | None = None
        self._turn = anyio.Lock()

    async def read(self, start: int, length: int) -> bytes:
        end = min(start + length, self.size)
        if start >= end:
            return b""
        near_end = self._near_at + len(self._near)
        if not self._near_at <= start < end <= near_end:
            near = self._near[start - self._near_at :] if self._near_at <= start < near_end else b""
            begin = start + len(near)
            try:
                near += await self._read(begin, min(max(end, begin + _AHEAD), self.size))
            except FileNotFoundError as error:
                raise StoreFailed(*_REPLACED) from error
            self._near, self._near_at = near, start
        return self._near[start - self._near_at : end - self._near_at]

    async def _read(self, start: int, end: int) -> bytes:
        options = {"range": (start, end), "if_match": f'"{self.tag}"'}
        if not self._store.without_ranges:
            try:
                return await self._store.ask(lambda bucket: bytes(self._get(bucket, options).bytes()))
            except StoreFailed as error:
                if _NO_RANGE not in str(error.__cause__):
                    raise
                self._store.without_ranges = True
        async with self._turn:
            whole, self._whole = self._whole, None  # one whose reading is broken off is not used again
            if whole is None or start < whole.at:
                stream = await self._store.ask(lambda bucket: self._get(bucket).stream(_FIRST_READ))
                whole = _Whole(self._store, stream)
            part = await whole.read(start, end)
            self._whole = whole
            return part

    def _get(self, bucket: "Bucket", options: Any = None) -> "GetResult":
        """Raises `FileNotFoundError` if another object is there now."""
        try:
            found = obstore.get(bucket, self._path, options=options)
        except exceptions.PreconditionError as error:
            raise FileNotFoundError(self._path) from error
        if _tag(found.meta) != self.tag:  # some stores ignore the condition
            raise FileNotFoundError(self._path)
        return found


class _Whole:
    """An object that is read from its beginning to its end, by and by."""

    def __init__(self, store: ObjectStore, stream: "BytesStream") -> None:
        self._store = store
        self._stream = stream
        self._held = bytearray()
        self.at = 0
        """Where the next bytes come from at least."""

    async def read(self, start: int, end: int) -> bytes:
        """Bytes from there; those before them cannot be read any more."""
        while self.at + len(self._held) < end:
            if (skipped := min(start - self.at, len(self._held))) > 0:
                del self._held[:skipped]
                self.at += skipped
            chunk = await self._store.ask(lambda _bucket: next(self._stream, None))
            if chunk is None:
                break
            self._held += chunk
        return bytes(self._held[start - self.at : end - self.at])


def _path(owner: str, name: str) -> str:
    return f"{owner}/{name}{_END}"


def _tag(meta: "ObjectMeta") -> str:
    """Without quotes, which some stores leave out in lists."""
    return (meta["e_tag"] or "").strip('"')


def _shown(error: str) -> str:
    """The cause in what the library says of an error: without the request, and what follows it for its developers."""
    cause = error.partition("\n")[0].rpartition(" - ")[2].partition(": <")[0]
    code = _CODE.search(error)
    return one_line(f"{cause}, {code[1]}" if code else cause)[:_SHOWN]


def _bucket(place: str) -> "Bucket":
    try:
        return from_url(
            place,
            # An endpoint without TLS is one that the operator has named. Each operation has its own patience, and a
            # request can last for many of them; one that nobody waits for any more ends when the store is silent.
            client_options={
                "allow_http": True,
                "timeout": timedelta(hours=1),
                "read_timeout": timedelta(seconds=2 * _PATIENCE),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRYING},
        )
    except (exceptions.BaseError, ValueError) as error:
        raise ProfileError(f"{place} cannot be used: {_shown(str(error))}", _STEP, key="sessions.store") from error
