"""The HTTP client of an installation: it reaches only the index and public addresses, by the operator's proxies."""

import re
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from types import MappingProxyType
from typing import Self
from urllib.parse import unquote

import anyio
import httpcore2
import httpx2

from ...network import dialing
from ...network.elsewhere import is_elsewhere

_SUFFIX = "_proxy"
_EXCEPT = "no"
_KINDS = ("http", "https")


class UnusableProxy(httpx2.RequestError):
    """The environment names a proxy that installations cannot use."""


class Proxies:
    """The variables `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in either case."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # The names in lower case come last, because they have priority.
        found = sorted((name, value) for name, value in environ.items() if name.lower().endswith(_SUFFIX) and value)
        self._named = {name.lower().removesuffix(_SUFFIX): value for name, value in found}
        self._excepted = [entry for item in self._named.get(_EXCEPT, "").split(",") if (entry := item.strip().lower())]

    def to(self, scheme: str, host: str) -> httpcore2.Proxy | None:
        """The proxy for a host; None if it is reached directly, as this machine itself always is.

        Raises `UnusableProxy` for another kind than http and https.
        """
        address = self._named.get(scheme) or self._named.get("all", "")
        if not address or _is_local(host) or any(_names(entry, host) for entry in self._excepted):
            return None
        try:
            url = httpx2.URL(address if "://" in address else f"http://{address}")
        except httpx2.InvalidURL:
            raise UnusableProxy(f"is behind the proxy of {scheme}{_SUFFIX}, which is not a URL") from None
        if url.scheme not in _KINDS or not url.host:
            raise UnusableProxy(f"is behind the proxy of {scheme}{_SUFFIX}, which must begin with http:// or https://")
        place = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/")
        return httpcore2.Proxy(place, auth=(url.username, url.password) if url.userinfo else None)


def _names(entry: str, host: str) -> bool:
    """Whether an entry of `no_proxy` is about a host: its name, a domain above it, its address, or a network of it."""
    host = host.lower()
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        domain = entry.rpartition(":")[0] if entry.rpartition(":")[2].isdigit() else entry
        return domain == "*" or f".{host}".endswith(f".{domain.removeprefix('*').removeprefix('.')}")


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_TIMES = httpx2.Timeout(60.0, connect=10.0, pool=None)
_CONNECTIONS = 32
_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
_UNREAD = 64 << 10
"""Bytes of a redirect's body that are taken so that the connection can be used again."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_ASKED = "llm-sandbox-mcp.asked"
_STRAYED = "llm-sandbox-mcp.strayed"
"""Request extensions: the request comes from our code, or is a redirect of one; and the redirect left the index."""

FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, httpcore2.ProxyError, *dialing.FAILURES)
"""The errors that a request with the client can raise."""


class PrivateAddress(httpx2.RequestError):
    """A place other than the index itself is at an address of a private network."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A package index that the operator named, with the credentials separated from the address."""

    url: httpx2.URL
    """The address without credentials."""
    auth: httpx2.BasicAuth | None
    credentials: bytes = field(default=b"", repr=False)

    @classmethod
    def parse(cls, address: str) -> Self:
        """Parses an address; `ValueError`, which does not repeat it, if it cannot be the address of an index."""
        try:
            url = httpx2.URL(address)
        except httpx2.InvalidURL:
            raise ValueError("is not a URL") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("must begin with http:// or https:// and name a host")
        if url.query or url.fragment:
            raise ValueError("must not contain ? or #")
        auth = httpx2.BasicAuth(url.username, url.password) if url.userinfo else None
        return cls(url.copy_with(userinfo=b""), auth, url.userinfo)

    @property
    def prefix(self) -> str:
        """The path of the index, which all its pages are below, without a trailing slash."""
        return self.url.raw_path.decode("ascii").rstrip("/")

    @property
    def host(self) -> str:
        return self.url.raw_host.decode("ascii")

    @property
    def place(self) -> tuple[str, int]:
        """The host and the port."""
        return self.host, _port(self.url)

    def holds(self, url: httpx2.URL) -> bool:
        """Whether a URL belongs to the index itself: it has the same origin, and is below its path."""
        path = url.raw_path.decode("ascii").partition("?")[0]
        return url.origin == self.url.origin and f"{path}/".startswith(f"{self.prefix}/") and is_plain(path)

    def auth_for(self, url: httpx2.URL) -> httpx2.BasicAuth | None:
        """The credentials of the index, but only for its own origin."""
        return self.auth if url.origin == self.url.origin else None

    def key_of(self, url: httpx2.URL) -> bytes:
        """The key that a file is kept under: if it needed credentials, only those who have the same ones get it."""
        return b"%s\n%s" % (str(url).encode(), self.credentials if self.auth_for(url) else b"")


async def read_certificates() -> ssl.SSLContext:
    """Reads the certificates that this machine trusts, in 40 ms; `SSL_CERT_FILE` and `SSL_CERT_DIR` replace them."""
    return await anyio.to_thread.run_sync(httpcore2.default_ssl_context)


@asynccontextmanager
async def open_client(
    upstream: str, trusted: ssl.SSLContext, environ: Mapping[str, str] = _NOTHING
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client for one installation from this index, with the certificates that it trusts.

    Redirects are followed, to http and https only: below the index's own address, or to public addresses without its
    credentials. `environ` names proxies; what a name leads to from there is up to them, but a name that leads to
    private addresses here is refused as well. `.netrc` is not used.
    """
    index = Upstream.parse(upstream)

    async def mark(request: httpx2.Request) -> None:
        # A redirect inherits the extensions of its request.
        strayed = _ASKED in request.extensions and not index.holds(request.url)
        request.extensions |= {_ASKED: True, _STRAYED: strayed}
        if strayed:
            request.headers.pop("authorization", None)

    async with httpx2.AsyncClient(
        transport=_Transport(trusted, index.place, Proxies(environ)),
        trust_env=False,
        follow_redirects=True,
        max_redirects=_REDIRECTS,
        timeout=_TIMES,
        event_hooks={"request": [mark]},
    ) as client:
        client.headers = httpx2.Headers({"user-agent": "llm-sandbox-mcp", "accept": "*/*"})
        yield client


def describe(error: BaseException) -> str:
    """Why a request failed, without the name of the host, which callers put before it."""
    if isinstance(error, (PrivateAddress, UnusableProxy)):
        return str(error)
    if isinstance(error, httpcore2.ProxyError):
        return f"cannot be reached through the proxy: {error}"
    if isinstance(error, httpx2.TooManyRedirects):
        return f"redirected more than {_REDIRECTS} times"
    return "did not answer in time" if isinstance(error, httpx2.TimeoutException) else dialing.describe(error)


class _Addresses:
    """The addresses that an installation may reach: public ones, and those of the index, if its place is given."""

    def __init__(self, own_place: tuple[str, int] | None) -> None:
        self._own_place = own_place
        # A mirror often serves index and files under several names of one address, so they all may use that address.
        # Behind another port, there is another service.
        self._own: set[tuple[str, int]] = set()
        self._checked: set[tuple[str, int]] = set()

    async def find(self, host: str, port: int) -> list[str]:
        """The allowed addresses of a host, resolved once; `PrivateAddress` if it has only others."""
        found = await _addresses(host, port)
        if (host, port) == self._own_place:
            self._own.update((address, port) for address in found)
        allowed = [address for address in found if (address, port) in self._own or is_elsewhere(address)]
        if found and not allowed:
            raise PrivateAddress(
                "is at a private address, or one of this machine, which is allowed only for the package index itself, "
                "at its own port"
            )
        return allowed

    async def check(self, host: str, port: int) -> None:
        """Raises `PrivateAddress` for a host at private addresses; one that has no address here is for the proxy."""
        if (host, port) not in self._checked:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                await self.find(host, port)
            self._checked.add((host, port))


def _port(url: httpx2.URL) -> int:
    return url.port or _PORTS[url.scheme]


async def _addresses(host: str, port: int) -> list[str]:
    """The addresses of a host."""
    try:
        with anyio.fail_after(_TIMES.connect):
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout(error) from error
    except OSError as error:
        raise httpcore2.ConnectError(error) from error
    return [str(entry[4][0]) for entry in found]


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class _Unread(_Body):
    """The body of a redirect, which nobody needs, and which httpx2 would keep in memory, however long it is."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = _UNREAD
        async for part in self._stream:
            left -= len(part)
            if left < 0:
                return
            yield b""


class _Transport(httpx2.AsyncBaseTransport):
    """A transport with our own network backend, which the transport of httpx2 does not support."""

    def __init__(self, trusted: ssl.SSLContext, own_place: tuple[str, int], proxies: Proxies) -> None:
        self._trusted = trusted
        self._proxies = proxies
        # They share no connection: the index may be at a private address, but a redirect out of it must not.
        self._allowed = {False: _Addresses(own_place), True: _Addresses(None)}
        self._pools: dict[tuple[bool, str], httpcore2.AsyncConnectionPool] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        pool = await self._pool(url, strayed=bool(request.extensions.get(_STRAYED)))
        answer = await pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                extensions=request.extensions,
            )
        )
        assert isinstance(answer.stream, AsyncIterable)
        # Cookies would be kept for the whole installation, however many there are.
        headers = [(name, value) for name, value in answer.headers if name.lower() != b"set-cookie"]
        response = httpx2.Response(
            answer.status, headers=headers, stream=_Body(answer.stream), extensions=answer.extensions
        )
        if response.has_redirect_location:
            response.stream = _Unread(answer.stream)
        return response

    async def _pool(self, url: httpx2.URL, *, strayed: bool) -> httpcore2.AsyncConnectionPool:
        """The connections that a request can use; raises `PrivateAddress` for a host that no proxy may be asked for."""
        allowed, proxy = self._allowed[strayed], self._proxies.to(url.scheme, url.host)
        if proxy is not None:
            await allowed.check(url.host, _port(url))
        key = strayed, url.scheme if proxy is not None else ""
        if key not in self._pools:
            self._pools[key] = httpcore2.AsyncConnectionPool(
                ssl_context=self._trusted,
                proxy=proxy,
                max_connections=_CONNECTIONS,
                max_keepalive_connections=_CONNECTIONS,
                keepalive_expiry=15.0,
                # The operator chose the proxy, which may be anywhere.
                network_backend=dialing.Dialer(allowed.find) if proxy is None else None,
            )
        return self._pools[key]

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


_SCOPED = re.compile(r"@[A-Za-z0-9_~-][A-Za-z0-9._~-]*%2[Ff][A-Za-z0-9_~-][A-Za-z0-9._~-]*")
"""npm requests scoped packages with an encoded slash in one segment; no other encoded slash is allowed."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\%]")


def is_plain(path: str) -> bool:
    """Whether no segment of an encoded path leads elsewhere, or could be read so by some server."""
    return all(map(_is_plain, path.split("/")))


def _is_plain(segment: str) -> bool:
    decoded = unquote(segment, "latin-1")
    # Some servers cut off everything after a semicolon before they check for dots.
    if decoded.partition(";")[0] in (".", "..") or "%2e" in segment.lower() or _ODD.search(decoded):
        return False
    return "/" not in decoded or _SCOPED.fullmatch(segment) is not None
