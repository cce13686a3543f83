"""The API of a cluster: plain JSON requests and answers, with the credentials that the package `kubernetes` reads."""

import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode
from weakref import WeakSet

import aiohttp
import anyio
from aiohttp.client_proto import ResponseHandler
from anyio.lowlevel import cancel_shielded_checkpoint
from kubernetes.aio.client import ApiClient, Configuration

from ...base.errors import EngineUnavailable
from ...base.messages import Problem
from ..base import SILENT

FIRST_SECONDS = 4.0
"""Timeout for the cluster's first answer, so that a missing cluster is reported within five seconds."""
SECONDS = 20.0
"""Timeout for an answer, once the cluster has answered before."""
_CONNECT_SECONDS = 30.0
"""Timeout for a process to start, once the cluster has answered; nodes are slow when many start at once."""
_REQUESTS = 16
"""Maximum requests at a time."""
_HANDSHAKES = 16
"""Maximum connections opened to processes at a time: a node that opens many at once opens none in time."""
_EVENT = 16 << 20
"""Maximum bytes of one event; etcd stores no object larger than 1.5 MiB."""
_WATCH_SECONDS = 60
"""Seconds after which a watch is started again."""
_UNAUTHORIZED = 401
_MESSAGE = 300
"""Maximum characters of a cluster's message when it refuses a request."""

Json = dict[str, Any]
Query = Sequence[tuple[str, str]]


class Refused(Exception):
    """The cluster's refusal of a request; every caller turns it into an error of this package."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """One cluster, accessed as one user, and the connections to it, which stay open until `aclose`."""

    def __init__(self, configuration: Configuration, namespace: str, renew: Callable[[], Awaitable[None]]) -> None:
        """`renew` reads the credentials into the configuration again, since some expire."""
        self._requests = anyio.CapacityLimiter(_REQUESTS)
        self._handshakes = anyio.CapacityLimiter(_HANDSHAKES)
        self.namespace = namespace
        self.address = str(configuration.host)
        self.calls = 0
        """Requests made so far, including those that became streams."""
        self._patience = FIRST_SECONDS
        self._client = ApiClient(configuration)
        # Each attached process keeps a connection as long as it lives: connections are not limited, requests are.
        self._connector = Connector(limit=0, ssl=self._client.rest_client.ssl_context)
        # Callers set the timeouts; aiohttp's default of five minutes would be a timer for each open connection.
        no_timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=self._connector, timeout=no_timeout, trust_env=True)
        self._renew = renew
        self._ahead = time.time() - time.monotonic()
        """How far the cluster's clock, as last reported, is ahead of this machine's monotonic clock, in seconds."""

    def now(self) -> datetime:
        """The cluster's time, to the second: the clocks of the servers' machines differ, and jump."""
        return datetime.fromtimestamp(time.monotonic() + self._ahead, UTC)

    async def aclose(self) -> None:
        """Closes its connections, whether or not the other side still answers."""
        await self._session.close()
        await self._connector.abort()

    async def call(self, method: str, path: str, query: Query = (), body: Json | list[Json] | None = None) -> Json:
        """The answer to one request; raises `Refused`, and `EngineUnavailable` if there is no answer."""
        async with self._requests:
            with self._answering(), anyio.fail_after(self._patience):
                async with await self._request(method, path, query, body) as answer:
                    content = await answer.read()
        self._patience = SECONDS
        return _checked(answer.status, content)

    async def silence(self) -> Problem | None:
        """Why the cluster does not answer now; None if it does."""
        try:
            with anyio.move_on_after(SILENT):
                await self.call("GET", "/version")
                return None
        except Refused:  # an answer too
            return None
        except EngineUnavailable as error:
            return error.problem
        return self._unreachable(f"no answer within {SILENT:g} s").problem

    @asynccontextmanager
    async def watch(self, path: str, query: Query) -> AsyncIterator[AsyncIterator[Json]]:
        """Events of the objects at a path, each with `type` and `object`, until the cluster ends the stream."""
        with self._answering():
            with anyio.fail_after(SECONDS):
                query = [*query, ("watch", "1"), ("timeoutSeconds", str(_WATCH_SECONDS))]
                answer = await self._request("GET", path, query, None)
            async with answer:
                if answer.status != 200:
                    _checked(answer.status, await answer.read())
                yield _events(answer)

    async def connect(self, path: str, query: Query, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        """Opens the websocket at a path; the caller closes it."""
        async with self._handshakes:
            with self._answering(), anyio.fail_after(_CONNECT_SECONDS):
                try:
                    return await self._connect(path, query, protocols)
                except Refused as refused:
                    if refused.status != _UNAUTHORIZED:
                        raise
                    await self._renew()
                    return await self._connect(path, query, protocols)

    async def _connect(self, path: str, query: Query, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        url, headers = await self._prepared("GET", path, query)
        try:
            socket: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
                url, protocols=protocols, headers=headers, max_msg_size=0, compress=0, **self._options()
            )
            return socket
        except aiohttp.WSServerHandshakeError as error:
            raise await self._handshake_refused(url, headers, error) from error

    async def _handshake_refused(
        self, url: str, headers: Mapping[str, str], error: aiohttp.WSServerHandshakeError
    ) -> Refused:
        """The refusal with the cluster's message: aiohttp drops it, so this sends the same as a plain request."""
        async with self._session.get(url, headers=headers, **self._options()) as answer:
            content = await answer.read()
        try:
            _checked(error.status, content)
        except Refused as refused:
            return refused
        return Refused(error.status, "", error.message)

    async def _request(self, method: str, path: str, query: Query, body: object) -> aiohttp.ClientResponse:
        answer = await self._ask(method, path, query, body)
        if answer.status == _UNAUTHORIZED:
            answer.release()
            await self._renew()
            answer = await self._ask(method, path, query, body)
        return answer

    async def _ask(self, method: str, path: str, query: Query, body: object) -> aiohttp.ClientResponse:
        url, headers = await self._prepared(method, path, query)
        if body is not None:
            headers["Content-Type"] = "application/json-patch+json" if isinstance(body, list) else "application/json"
        # The cluster ends every watch in time; a watch that lasts longer has lost its connection.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=SECONDS, sock_read=_WATCH_SECONDS + SECONDS)
        data = None if body is None else json.dumps(body).encode()
        answer = await self._session.request(
            method, url, data=data, headers=headers, timeout=timeout, **self._options()
        )
        with suppress(KeyError, ValueError):
            self._ahead = parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.monotonic()
        return answer

    async def _prepared(self, method: str, path: str, query: Query) -> tuple[str, dict[str, str]]:
        """The full URL, and headers with credentials, which are renewed if they have expired."""
        self.calls += 1
        _, url, headers, _, _ = await self._client.param_serialize(
            method, path, header_params={"Accept": "application/json, */*"}, auth_settings=["BearerToken"]
        )
        return f"{url}?{urlencode(query)}" if query else url, dict(headers)

    def _options(self) -> dict[str, Any]:
        configuration = self._client.configuration
        options: dict[str, Any] = {}
        if configuration.tls_server_name:
            options["server_hostname"] = configuration.tls_server_name
        if configuration.proxy:
            options |= {"proxy": configuration.proxy, "proxy_headers": configuration.proxy_headers}
        return options

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise self._unreachable("no answer in time") from error
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
            raise self._unreachable("the connection broke") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error

    def _unreachable(self, reason: str) -> EngineUnavailable:
        return EngineUnavailable(
            f"kubernetes does not answer at {self.address}: {reason}",
            "check that the cluster runs, and kubernetes.context in the profile",
        )


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    pending = bytearray()
    async for part in answer.content.iter_any():
        pending += part
        *lines, rest = pending.split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            event: Json = json.loads(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise Refused(int(status.get("code") or 0), str(status.get("reason")), str(status.get("message")))
            yield event
        if len(pending) > _EVENT:
            raise Refused(0, "TooLarge", "one event of the cluster is longer than 16 MiB")


def _checked(status: int, content: bytes) -> Json:
    try:
        answer = json.loads(content) if content else {}
    except ValueError:
        answer = {"message": " ".join(content.decode(errors="replace").split())[:_MESSAGE]}
    if not isinstance(answer, dict):
        answer = {"message": str(answer)[:_MESSAGE]}
    if status >= 400:
        raise Refused(status, str(answer.get("reason") or ""), str(answer.get("message") or status)[-_MESSAGE:])
    return answer


_UNREAD = 256 << 10
"""The receive buffer of one connection, in bytes: by default, the kernel buffers many MiB of an output flood."""


def _open(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD)
    return opened


class Connector(aiohttp.TCPConnector):
    """aiohttp's connector, with a way to close every connection that it made.

    aiohttp forgets a connection whose answer was not read to its end, and first waits for a TLS shutdown by the other
    side; if that is busy, the connection stays open for half a minute after everything else is closed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, socket_factory=_open)
        self._made: WeakSet[Any] = WeakSet()

    async def abort(self) -> None:
        """Closes every connection that is still open, whether or not the other side still answers."""
        for transport in list(self._made):
            transport.abort()
        # The event loop closes the sockets of aborted connections in its next iteration.
        await cancel_shielded_checkpoint()

    async def _create_connection(self, *args: Any) -> ResponseHandler:
        made = await super()._create_connection(*args)
        self._made.add(made.transport)
        return made
