"""Forwards plain HTTP requests to a domain with a secret over TLS, and adds the header that code never sees."""

import re
import ssl
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass

import anyio.to_thread
import httpcore2

from ..base.destinations import HTTPS, read_authority
from .dialing import FAILURES, Dialer, describe
from .http1 import Headers, Refused, Reply, Request
from .secrets import Secret

_HTTP = 80
_TARGET = re.compile(r"http://([^/?#]+)([/?][^#]*)?")
_TIMES = {"connect": 10.0, "write": 60.0, "read": 300.0, "pool": 10.0}
_HOP = {"connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer"}
_HOP |= {"transfer-encoding", "upgrade", "expect", "host"}
"""Headers that apply only to one of the two connections."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
"""The methods that are served. Some others ask a server to repeat the request, including the secret."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for a destination that has secrets."""

    host: str
    port: int
    path: str
    secrets: Sequence[Secret]

    @property
    def authority(self) -> str:
        """The host, with its port if that is not 443, for the `host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == HTTPS else f"{host}:{self.port}"


def wanted(target: str, secrets: Sequence[Secret]) -> Wanted | None:
    """Parses a plain HTTP URL; None if there are no secrets for its destination. Port 80 becomes 443."""
    match = _TARGET.fullmatch(target)
    if match is None:
        return None
    authority = match[1] if re.search(r":[0-9]+$", match[1]) else f"{match[1]}:{_HTTP}"
    try:
        host, port = read_authority(authority)
    except ValueError:
        return None
    port = HTTPS if port == _HTTP else port
    theirs = [one for one in secrets if (one.destination.host, one.destination.port) == (str(host), port)]
    path = match[2] or "/"
    return Wanted(str(host), port, path if path.startswith("/") else f"/{path}", theirs) if theirs else None


class Forwarder:
    """Makes these requests; each has its own connection, to the addresses that were checked for it."""

    def __init__(self, trusted: ssl.SSLContext) -> None:
        self._trusted = trusted

    @classmethod
    async def make(cls) -> "Forwarder":
        """A forwarder that trusts the certificates of this machine; `SSL_CERT_FILE` and `SSL_CERT_DIR` replace them."""
        return cls(await anyio.to_thread.run_sync(httpcore2.default_ssl_context))

    async def forward(self, asked: Request, reply: Reply, wanted: Wanted, addresses: Sequence[str]) -> None:
        """Forwards a request and passes the response back, also a redirect: the code itself must follow it."""
        request = httpcore2.Request(
            method=asked.method,
            url=httpcore2.URL(scheme="https", host=wanted.host, port=wanted.port, target=wanted.path),
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in _headers(asked, wanted)],
            content=asked.body if _has_body(asked) else None,
            extensions={"timeout": _TIMES},
        )

        async def checked(host: str, port: int) -> Sequence[str]:
            return addresses

        try:
            async with httpcore2.AsyncConnectionPool(self._trusted, network_backend=Dialer(checked)) as pool:
                answer = await pool.handle_async_request(request)
                try:
                    await _pass_back(answer, reply)
                finally:
                    await answer.aclose()
        except FAILURES as error:
            raise Refused(502, f"{wanted.host} {describe(error)}; try again later") from None


async def _pass_back(answer: httpcore2.Response, reply: Reply) -> None:
    decoded = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in answer.headers]
    await reply.start(answer.status, _without_hop(decoded))
    assert isinstance(answer.stream, AsyncIterable)
    async for part in answer.stream:
        await reply.write(part)


def _headers(asked: Request, wanted: Wanted) -> Headers:
    ours = [(secret.header, secret.value) for secret in wanted.secrets]
    # Programs behind some servers cannot distinguish `-` from `_` in header names.
    named = {name.replace("_", "-") for name, _ in ours}
    theirs = [line for line in _without_hop(asked.lines) if line[0].replace("_", "-") not in named]
    framing = [("transfer-encoding", "chunked")] if "transfer-encoding" in asked.headers else []
    return [("host", wanted.authority), *theirs, *framing, *ours]


def _without_hop(lines: Headers) -> Headers:
    named = {word.strip().lower() for name, value in lines if name == "connection" for word in value.split(",")}
    if any(name == "transfer-encoding" for name, _ in lines):
        # With both lengths, one server can see a single message where the server behind it sees two.
        named.add("content-length")
    return [(name, value) for name, value in lines if name not in _HOP | named]


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or "content-length" in request.headers
