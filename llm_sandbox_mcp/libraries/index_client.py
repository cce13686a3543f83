"""The way out of an installation: an HTTP client that reaches the package index and public addresses, no others."""

import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

import anyio
import httpcore2
import httpx2

from ..destinations import is_public
from ..network import failures
from ..network.dialing import Dialer
from .paths import is_plain

_TIMES = httpx2.Timeout(60.0, connect=10.0, pool=None)
_CONNECTIONS = 32
_REDIRECTS = 5
_ASKED = "llm-sandbox-mcp.asked"
_STRAYED = "llm-sandbox-mcp.strayed"
"""What requests carry: that they were asked for, or are redirects of such; and that a redirect left the index."""

FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, *failures.FAILURES)
"""What a request through the client can raise."""


class PrivateAddress(httpx2.RequestError):
    """A name that is not the index's own leads into a private network."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A package index as the operator named it, its credentials apart from its address."""

    url: httpx2.URL
    """Without credentials."""
    auth: httpx2.BasicAuth | None
    credentials: bytes = field(default=b"", repr=False)

    @classmethod
    def parse(cls, address: str) -> Self:
        """Reads the address; `ValueError`, which does not repeat the address, when it is not that of an index."""
        try:
            url = httpx2.URL(address)
        except httpx2.InvalidURL:
            raise ValueError("is not a URL") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("must begin with http:// or https:// and name a host")
        if url.query or url.fragment:
            raise ValueError("must have neither ? nor #")
        auth = httpx2.BasicAuth(url.username, url.password) if url.userinfo else None
        return cls(url.copy_with(userinfo=b""), auth, url.userinfo)

    @property
    def prefix(self) -> str:
        """The path that everything of the index is below, without a slash at its end."""
        return self.url.raw_path.decode("ascii").rstrip("/")

    @property
    def host(self) -> str:
        return self.url.raw_host.decode("ascii")

    def holds(self, url: httpx2.URL) -> bool:
        """Whether something is of the index itself: at its origin, and below its path."""
        path = url.raw_path.decode("ascii").partition("?")[0]
        return url.origin == self.url.origin and f"{path}/".startswith(f"{self.prefix}/") and is_plain(path)

    def auth_for(self, url: httpx2.URL) -> httpx2.BasicAuth | None:
        """The index's credentials, for its own origin only."""
        return self.auth if url.origin == self.url.origin else None

    def key_of(self, url: httpx2.URL) -> bytes:
        """What a file from there is kept under: one that took credentials is for those only who have the same."""
        return b"%s\n%s" % (str(url).encode(), self.credentials if self.auth_for(url) else b"")


@asynccontextmanager
async def open_client(upstream: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client for one installation from this index, trusting the certificates that this machine trusts.

    `SSL_CERT_FILE` and `SSL_CERT_DIR` replace those. Redirects are followed, to http and https only: below the index's
    own address, or to public addresses without its credentials. Proxies and `.netrc` are not used.
    """
    index = Upstream.parse(upstream)

    async def mark(request: httpx2.Request) -> None:
        # A redirect inherits what its request has here.
        strayed = _ASKED in request.extensions and not index.holds(request.url)
        request.extensions |= {_ASKED: True, _STRAYED: strayed}
        if strayed:
            request.headers.pop("authorization", None)

    trusted = await anyio.to_thread.run_sync(httpcore2.default_ssl_context)
    async with httpx2.AsyncClient(
        transport=_Transport(trusted, index.host),
        trust_env=False,
        follow_redirects=True,
        max_redirects=_REDIRECTS,
        timeout=_TIMES,
        event_hooks={"request": [mark]},
    ) as client:
        client.headers = httpx2.Headers({"user-agent": "llm-sandbox-mcp", "accept": "*/*"})
        yield client


def describe(error: BaseException) -> str:
    """Why a request failed, to follow the name of the host."""
    if isinstance(error, PrivateAddress):
        return str(error)
    if isinstance(error, httpx2.TooManyRedirects):
        return f"redirected more than {_REDIRECTS} times"
    return "did not answer in time" if isinstance(error, httpx2.TimeoutException) else failures.describe(error)


class _Addresses:
    """The addresses that an installation may reach: public ones, and those of the index itself, if it is named."""

    def __init__(self, own_host: str | None) -> None:
        self._own_host = own_host
        # A mirror often serves index and files under several names of one address; what the index may be, that may be.
        self._own: set[str] = set()

    async def find(self, host: str, port: int) -> list[str]:
        """Those of a host, resolved once; `PrivateAddress` where it has none that may be reached."""
        found = await _addresses(host, port)
        if host == self._own_host:
            self._own.update(found)
        allowed = [address for address in found if address in self._own or is_public(address)]
        if found and not allowed:
            raise PrivateAddress("is at a private address, which only the package index itself may be")
        return allowed


async def _addresses(host: str, port: int) -> list[str]:
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


class _Transport(httpx2.AsyncBaseTransport):
    """httpx2's own transport takes no network backend, so this is one that does."""

    def __init__(self, trusted: ssl.SSLContext, own_host: str) -> None:
        self._pool = _pool(trusted, own_host)
        # No connection of the one serves the other: what the index itself may be, a redirect out of it may not.
        self._public = _pool(trusted, None)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        pool = self._public if request.extensions.get(_STRAYED) else self._pool
        answer = await pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                extensions=request.extensions,
            )
        )
        assert isinstance(answer.stream, AsyncIterable)
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()
        await self._public.aclose()


def _pool(trusted: ssl.SSLContext, own_host: str | None) -> httpcore2.AsyncConnectionPool:
    return httpcore2.AsyncConnectionPool(
        ssl_context=trusted,
        max_connections=_CONNECTIONS,
        max_keepalive_connections=_CONNECTIONS,
        keepalive_expiry=15.0,
        network_backend=Dialer(_Addresses(own_host).find),
    )
