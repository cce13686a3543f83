"""The ways to reach the server: stdio, streamable HTTP, SSE. Each serves until it is asked to end, then returns."""

import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.abc import TaskStatus
from mcp.server.lowlevel.server import Server

from ..backends.room import connections
from ..base.errors import BadAddress, UnknownArtifact
from ..service import Service
from .access import names_of, read_token, require_token

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route


class Paths(Protocol):
    """Paths without MCP, which are served as well."""

    largest: int
    """Bytes of a request's body at most."""
    probes: "Sequence[Route]"
    """Those that need no token."""

    def routes(self, check: "Callable[[Request], Awaitable[Response | None]]", *, bearer: bool) -> "Sequence[Route]":
        """All others. `check` returns the refusal of a request that is for another host, or from a page of another
        host; `bearer`: whether callers need a token."""

    async def refuse(self, request: "Request", error: Exception) -> "Response":
        """Answers a request that is refused, or for a path or method that there is not."""


async def serve_stdio(server: Server[Any], service: Service) -> None:
    """Serves one client on stdin and stdout until the input ends, or SIGTERM or SIGINT comes."""
    from .stdio import stdio_streams

    async with anyio.create_task_group() as tasks:
        await tasks.start(_cancel_on_signal, tasks.cancel_scope, service)
        async with stdio_streams() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def serve_http(server: Server[Any], service: Service, host: str, port: int, paths: Paths | None = None) -> None:
    """Serves any number of clients, streamable HTTP at `/mcp` and SSE at `/sse`, until SIGTERM or SIGINT comes.

    Port 0 takes a free port; the address is printed on stderr. Raises `ProfileError` for a token that cannot be used.
    Raises `BadAddress` for an address that cannot be used, or for a host that is not loopback if there is no token.
    """
    import uvicorn

    from .connections import WAITING, SingleAnswer, bounded, prepare

    section = service.profile.http
    token = await read_token(section.token_file) if section.token_file else None
    listener = _listen(host, port, to_others=token is not None)
    prepare(listener)
    stopping = anyio.Event()
    config = uvicorn.Config(
        SingleAnswer(_application(server, service, stopping, token, paths)),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        # Streams that clients keep open never end by themselves; their work is cancelled and cleaned up.
        timeout_graceful_shutdown=0,
        **bounded(connections()),
    )

    class Serving(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listener.listen(WAITING)  # asyncio has set this queue to the size of one batch

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # uvicorn's own handlers would raise the signal again at the end

    serving = Serving(config)

    async def stop_on_signal(*, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                await service.keeping.end()  # while what is interrupted for this can still be answered
                stopping.set()
                serving.should_exit = True
                # Each stream that is cancelled from here on would be reported as an error, with a traceback.
                logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    address = listener.getsockname()
    name = f"[{address[0]}]" if listener.family == socket.AF_INET6 else address[0]
    sys.stderr.write(f"listening on http://{name}:{address[1]}/mcp (SSE: /sse)\n")
    sys.stderr.flush()
    async with anyio.create_task_group() as tasks:
        await tasks.start(stop_on_signal)
        with listener:
            await serving.serve([listener])
        tasks.cancel_scope.cancel()


async def _cancel_on_signal(scope: anyio.CancelScope, service: Service, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            await service.keeping.end()  # while what is interrupted for this can still be answered
            scope.cancel()


def _listen(host: str, port: int, *, to_others: bool) -> socket.socket:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError as error:
        raise BadAddress(f"host {host}: not an IP address", "give one such as 127.0.0.1 or 0.0.0.0") from error
    if not address.is_loopback and not to_others:
        raise BadAddress(
            f"host {host}: must be a loopback address (127.0.0.1, ::1, localhost), as callers need no token",
            "to serve other machines, set http.token_file in the profile",
        )
    if not 0 <= port < 1 << 16:
        raise BadAddress(f"port {port}: must be from 0 to 65535", "choose another, or 0 for a free one")
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        return socket.create_server((str(address), port), family=family)
    except OSError as error:
        # `create_server` repeats the address in its error.
        reason = os.strerror(error.errno) if error.errno else error
        raise BadAddress(
            f"port {port}: cannot listen there: {reason}", "choose another, or 0 for a free one"
        ) from error


def _worth_logging(record: logging.LogRecord) -> bool:
    """False if a client caused the error, so that it could fill the log.

    It disconnected or ended its session during its request, or replaced an artifact that it was getting.
    """
    from starlette.requests import ClientDisconnect

    from .connections import TOO_LATE

    return not (record.exc_info and isinstance(record.exc_info[1], (ClientDisconnect, UnknownArtifact, *TOO_LATE)))


def _application(
    server: Server[Any], service: Service, stopping: anyio.Event, token: str | None, paths: Paths | None
) -> "Starlette":
    from mcp.server.sse import SseServerTransport
    from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE, TransportSecurityMiddleware
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Mount, Route
    from starlette.types import Receive, Scope, Send

    from .bodies import Bodies
    from .handshakes import CLIENTS, Handshakes
    from .mending import Mending

    settings = names_of(service.profile.http.hosts)
    security = TransportSecurityMiddleware(settings)
    sse = SseServerTransport("/messages/", settings)

    class ServeSSE:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async def end_input() -> None:
                await stopping.wait()
                await incoming.aclose()

            # `connect_sse` checks the headers too, but a refusal there ends in an exception after the answer.
            if refusal := await security.validate_request(Request(scope, receive)):
                await refusal(scope, receive, send)
                return
            async with (
                sse.connect_sse(scope, receive, send) as (incoming, outgoing),
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(end_input)
                await server.run(incoming, outgoing, server.create_initialization_options())
                tasks.cancel_scope.cancel()

    async def refuse(_: Request, error: HTTPException) -> Response:
        return PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)

    async def ok(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    for logger in ("mcp.server.streamable_http", "uvicorn.error"):
        logging.getLogger(logger).addFilter(_worth_logging)
    application = server.streamable_http_app(transport_security=settings, max_sessions=CLIENTS + connections())
    application.router.routes += [
        Route("/sse", ServeSSE(), methods=["GET"]),
        Mount("/messages/", sse.handle_post_message),
    ]
    largest = max(DEFAULT_MAX_REQUEST_BODY_SIZE, paths.largest if paths else 0)
    application.add_middleware(Mending, DEFAULT_MAX_REQUEST_BODY_SIZE)
    application.add_middleware(Handshakes, settings.allowed_hosts[0])
    # The middleware that is added last runs first: of a request without the token, nothing is read.
    application.add_middleware(Bodies, largest, paths.refuse if paths else refuse)
    if token is not None:
        require_token(application, token)

    # These need no token: programs that probe a server have none, and learn nothing else here.
    probes: Sequence[Route] = [Route("/health", ok)]
    if paths is not None:
        application.router.routes += paths.routes(security.validate_request, bearer=token is not None)
        probes = paths.probes
    whole = Starlette(routes=[*probes, Mount("/", application)], lifespan=application.router.lifespan_context)
    if paths is not None:
        for part in (application, whole):
            part.add_exception_handler(HTTPException, paths.refuse)
    return whole
