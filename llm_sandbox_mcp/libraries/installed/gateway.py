"""The package index gateway, which a sandbox without a network can reach while libraries are installed into it.

It mirrors one package index, read-only. The root of the gateway is the index, whatever the path of the index is: npm
would put such a path before the path of every file. Files that are not below the index are served under
`/files/<token>/<name>`, and only those that a response of the index named during this installation. Hosts come from the
operator and from the index, never from the sandbox.
"""

import os
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from urllib.parse import quote, urljoin, urlsplit

import anyio
import anyio.lowlevel
import httpx2

from ...backends.listening import Listener
from ...network.http1 import Headers, Refused, Reply, Request, Serving, serve
from .downloads import Downloads
from .index_client import FAILURES, PrivateAddress, Upstream, describe, is_plain
from .index_pages import PAGES, Locate, Rewriting
from .named_files import NamedFiles, Room

CONNECTIONS = 64
"""Maximum connections of one installation at the same time; others wait."""
PAGE = 64 << 20
"""Maximum bytes of one response of the index that must be rewritten, unpacked."""
_URL = 4096
_PROBLEMS = 8
"""Maximum lines about failures: code can cause any number."""
_PIECE = 64 << 10
_TURN = 2 << 10
"""Bytes of a page that are rewritten before other tasks run: a fraction of a millisecond, and the worst ones a few."""

_PATH = re.compile(r"/|(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)+/?")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
_FILE = re.compile(r"/files/([0-9a-f]{32})/([^/]+)")

_ASKED = ("accept", "if-none-match", "if-modified-since", "range", "if-range")
_ANSWERED = (
    "content-type",
    "content-length",
    "content-encoding",
    "content-range",
    "accept-ranges",
    "etag",
    "last-modified",
    "cache-control",
)

_GZIP = 16 + zlib.MAX_WBITS
_FROM_TOP = re.compile("/[^/]")
_WHOLE = ("https://", "http://")
_NOTHING = re.compile(r"(?!)")

OnProblem = Callable[[str], None]
"""Gets one line without credentials when a download fails first; package managers do not show such lines."""


class Gateways:
    """What the gateways of one server share, so that none takes it from the others."""

    def __init__(self) -> None:
        self.files = Room()
        self._turn = anyio.Lock()

    async def rewrite(self, own: anyio.Lock, rewriting: Rewriting, piece: bytes) -> bytes:
        """The bytes of a page that are done after its next piece, in turns with all other installations and tasks.

        `own` is the lock of its installation, whose pages share its turns.
        """
        # Not in a thread: it would hold up the others for five milliseconds again and again, and could not be stopped.
        done = []
        for start in range(0, len(piece), _TURN):
            async with own, self._turn:
                done.append(rewriting.feed(piece[start : start + _TURN]))
                await anyio.lowlevel.checkpoint()
        return b"".join(done)


def index_url(listener: Listener) -> str:
    """The URL that the package manager gets instead of the URL of the upstream."""
    return f"{_origin(listener)}/"


async def serve_index(
    listener: Listener,
    upstream: str,
    *,
    client: httpx2.AsyncClient,
    gateways: Gateways,
    downloads: Downloads | None = None,
    files: re.Pattern[str] = _NOTHING,
    on_problem: OnProblem = lambda line: None,
) -> None:
    """Serves the index to the connections of a listener, until it is cancelled.

    The client comes from `open_client(upstream)`; it refuses private addresses. `ValueError` for an upstream that is
    not the address of an index. Files that the index names elsewhere, and those whose whole path below the index
    matches `files`, are searched among the downloads first.
    """
    index = Upstream.parse(upstream)
    with gateways.files.open() as named:
        gateway = _Gateway(_origin(listener), index, client, gateways, named, downloads, files, on_problem)
        await serve(listener, Serving(gateway.answer, CONNECTIONS))


def _origin(listener: Listener) -> str:
    return f"http://127.0.0.1:{listener.port}"


def checked_path(target: str) -> tuple[str, str]:
    """Path and query of a request target, still encoded; `Refused` for a path that could lead elsewhere."""
    path, _, query = target.partition("?")
    if not _PATH.fullmatch(path) or not _QUERY.fullmatch(query):
        raise Refused(400, "the path is malformed")
    if not is_plain(path):
        raise Refused(403, "the path could lead out of the package index")
    return path, query


class _Gateway:
    def __init__(
        self,
        origin: str,
        upstream: Upstream,
        client: httpx2.AsyncClient,
        gateways: Gateways,
        named: NamedFiles,
        downloads: Downloads | None,
        files: re.Pattern[str],
        on_problem: OnProblem,
    ) -> None:
        self._origin = origin
        self._upstream = upstream
        self._index = str(upstream.url).rstrip("/")
        self._client = client
        self._gateways = gateways
        self._turn = anyio.Lock()
        self._named = named
        self._downloads = downloads
        self._unchanging = files
        self._on_problem = on_problem
        self._told: set[str] = set()

    async def answer(self, request: Request, reply: Reply) -> None:
        url, is_page = self._source(request)
        # The upstream answers requests for a part of a file, or for one that the package manager may have already.
        whole = not is_page and request.method == "GET" and not {"range", "if-none-match"} & request.headers.keys()
        downloads = self._downloads if whole else None
        key = self._upstream.key_of(url)
        if downloads is not None and (kept := await downloads.find(key)) is not None:
            async with kept:
                await _send_kept(reply, kept)
            return
        headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
        compressed = is_page and "gzip" in request.headers.get("accept-encoding", "")
        headers["accept-encoding"] = "gzip" if compressed else "identity"
        host = url.host
        try:
            auth = self._upstream.auth_for(url)
            async with self._client.stream(request.method, url, headers=headers, auth=auth) as response:
                host = response.url.host
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if is_page and response.status_code == 200 and kind in PAGES:
                    await self._send_page(request, reply, response, PAGES[kind])
                elif downloads is not None and _is_whole(response):
                    async with downloads.keep(key, int(response.headers["content-length"])) as take:
                        await self._send_as_is(request, reply, response, take)
                else:
                    await self._send_as_is(request, reply, response)
        except FAILURES as error:
            host = error.request.url.host if isinstance(error, httpx2.RequestError) and _has_request(error) else host
            status = 403 if isinstance(error, PrivateAddress) else 502
            raise self._failed(f"{host} {describe(error)}", status) from error

    def _source(self, request: Request) -> tuple[httpx2.URL, bool]:
        """The URL to fetch, and whether it is a page, which can name files and can change."""
        path, query = checked_path(request.target)
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "only GET and HEAD are served here")
        if f"http://{request.headers.get('host', '')}" not in (self._origin, self._origin.removesuffix(":80")):
            raise Refused(403, "only the package index is served here")
        if file := _FILE.fullmatch(path):
            return self._named_file(file[1], file[2]), False
        url = httpx2.URL(f"{self._index}{path}{'?' if query else ''}{query}")
        unchanging = not query and len(path) <= _URL and self._unchanging.fullmatch(path, 1)
        return url, not unchanging

    def _named_file(self, token: str, name: str) -> httpx2.URL:
        named = self._named.find(token)
        if named is not None:
            url = urlsplit(named)
            own_name = _file_name(url.path)
            if name == f"{own_name}.metadata":
                url, name = url._replace(path=f"{url.path}.metadata"), own_name
            if name == own_name:
                # Only for a requested file: pages name thousands, and parsing all their URLs was the slowest part.
                with suppress(httpx2.InvalidURL):
                    return httpx2.URL(url.geturl())
        raise Refused(404, "the package index has not named this file")

    async def _send_page(
        self, request: Request, reply: Reply, response: httpx2.Response, rewriting: Callable[[Locate], Rewriting]
    ) -> None:
        # No validators, and no caching: the tokens in a page are valid only for this installation, so the package
        # manager must not take the page from its cache in the next one.
        await reply.start(200, [*_plain(response, ("content-type",)), ("cache-control", "no-store")])
        if request.method == "HEAD":
            return
        page, taken = rewriting(self._locator(str(response.url))), 0
        try:
            async for piece in _unpacked(response):
                taken += len(piece)
                if taken > PAGE:
                    raise self._failed(f"{response.url.host} answered with more than {PAGE >> 20} MiB")
                await reply.write(await self._gateways.rewrite(self._turn, page, piece))
        except (zlib.error, EOFError):
            raise self._failed(f"{response.url.host} answered with a page that cannot be read") from None
        await reply.write(page.end())

    async def _send_as_is(
        self,
        request: Request,
        reply: Reply,
        response: httpx2.Response,
        take: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        await reply.start(response.status_code, _plain(response, _ANSWERED))
        if request.method == "GET":
            async for piece in response.aiter_raw():
                if take is not None:
                    await take(piece)
                await reply.write(piece)

    def _failed(self, line: str, status: int = 502) -> Refused:
        if line not in self._told and len(self._told) < _PROBLEMS:
            self._told.add(line)
            self._on_problem(line)
        return Refused(status, line)

    def _locator(self, page_url: str) -> Locate:
        """Maps each link of a page to its URL in the gateway; `ValueError` for text that is no link."""
        below = f"{self._index}/"
        top = urljoin(page_url, "/").rstrip("/")

        def locate(link: str) -> str:
            whole = link.strip()
            if _FROM_TOP.match(whole) and "/." not in whole:
                # As below, but four times as fast; a page can have a million of them.
                whole = f"{top}{whole}"
            elif not whole.startswith(_WHOLE):
                whole = urljoin(page_url, whole)
            url, hash_mark, fragment = whole.partition("#")
            if url.startswith(below):
                return f"{self._origin}{url[len(self._index) :]}{hash_mark}{fragment}"
            parts = urlsplit(url)
            name = _file_name(parts.path)
            if parts.scheme not in ("http", "https") or not name or len(url) > _URL:
                return link
            return f"{self._origin}/files/{self._named.add(url)}/{name}{hash_mark}{fragment}"

        return locate


async def _unpacked(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The pieces of a body; `zlib.error` or `EOFError` if it cannot be unpacked, or ends too early."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        async for piece in response.aiter_raw():
            yield piece
        return
    if encoding not in ("gzip", "x-gzip"):
        raise zlib.error
    # Unlike httpx2, this sees when the end is missing.
    unpacking = zlib.decompressobj(_GZIP)
    async for piece in response.aiter_raw():
        packed = piece
        while packed:
            yield unpacking.decompress(packed, _PIECE)
            packed = unpacking.unconsumed_tail
        if unpacking.unused_data:
            raise zlib.error
    # At most what the last bytes of the body stand for, which is less than a piece.
    yield unpacking.flush()
    if not unpacking.eof:
        raise EOFError


def _plain(response: httpx2.Response, names: Iterable[str]) -> Headers:
    """Those of the headers that are plain text; the index can send any bytes."""
    found = ((name, response.headers.get(name, "")) for name in names)
    return [(name, value) for name, value in found if value.isascii() and value.isprintable() and value]


def _is_whole(response: httpx2.Response) -> bool:
    """Whether the body is the unencoded file, with a known length."""
    headers = response.headers
    return response.status_code == 200 and "content-length" in headers and "content-encoding" not in headers


async def _send_kept(reply: Reply, file: anyio.AsyncFile[bytes]) -> None:
    size = os.fstat(file.wrapped.fileno()).st_size
    await reply.start(200, [("content-type", "application/octet-stream"), ("content-length", str(size))])
    while piece := await file.read(_PIECE):
        await reply.write(piece)


def _file_name(path: str) -> str:
    return quote(path.rpartition("/")[2], safe="%!$&'()*+,;=:@~")


def _has_request(error: httpx2.RequestError) -> bool:
    try:
        return bool(error.request)
    except RuntimeError:
        return False
