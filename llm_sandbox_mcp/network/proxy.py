"""The proxy: it resolves and checks the hosts of CONNECT requests, and connects to them, or refuses and logs them."""

import resource
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskStatus

from ..aio.tasks import open_tasks
from ..backends.base import Sandbox
from ..backends.listening import PROXY_PORT
from ..base.destinations import Destination, IPAddress, grants, opens, read_authority, read_host
from ..base.errors import ListeningFailed, SandboxLost, StartFailed, quoted
from ..host.audit import Audit
from .connecting import Resolver, connect
from .elsewhere import is_elsewhere
from .http1 import Refused, Reply, Request, Serving, serve
from .secrets import Secret
from .sharing import Shared
from .tunnel import carry

if TYPE_CHECKING:
    from .forwarding import Forwarder

CONNECTIONS = 32
"""Maximum connections of one sandbox at the same time; others wait until one ends or has no request."""
IDLE = 300.0
"""Seconds without data on a connection before it is closed."""
_LOOKUPS = 4
"""Names that are resolved for one sandbox at the same time; each takes a thread."""
_THREADS = 32
_FREE = 100
"""Refusals of one sandbox without a delay; each further one delays the next, since the log is on a disk."""
_PENALTY = 0.1
"""Seconds."""

_STEP = "use a host that the profile names in network.domains"


async def make_proxy(audit: Audit, secrets: Sequence[Secret]) -> "Proxy":
    """The proxy of a server; with an HTTP client if there are secrets to add."""
    if not secrets:
        return Proxy(audit)
    # Only a profile with secrets needs an HTTP client: its import would delay every start of the server.
    from .forwarding import Forwarder

    return Proxy(audit, secrets, await Forwarder.make())


class Proxy:
    """The one proxy for all sandboxes of a server."""

    def __init__(self, audit: Audit, secrets: Sequence[Secret] = (), forwarder: "Forwarder | None" = None) -> None:
        self._audit = audit
        self._secrets = secrets
        self._forwarder = forwarder
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._held: set[str] = set()
        # Each connection and each pipe takes two descriptors; more than a third is left for the rest of the server.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._shared = Shared(max(CONNECTIONS, files // 4))
        self._pipes = anyio.Semaphore(files // 16)

    @asynccontextmanager
    async def attached(self, sandbox: Sandbox) -> AsyncIterator[None]:
        """Serves one sandbox while the scope lasts, if its policy grants hosts; no code runs in the sandbox before.

        Raises `StartFailed` if the sandbox cannot listen. Code that kills the listener has no network afterwards.
        """
        if sandbox.policy.network.mode != "allow":
            yield
            return
        async with open_tasks() as tasks:
            await tasks.start(self._serve, sandbox)
            yield
            tasks.cancel_scope.cancel()

    @contextmanager
    def held(self, sandbox: Sandbox) -> Iterator[None]:
        """Refuses all requests of a sandbox while the scope lasts; existing connections stay open."""
        self._held.add(sandbox.id)
        try:
            yield
        finally:
            self._held.discard(sandbox.id)

    async def _serve(self, sandbox: Sandbox, *, task_status: TaskStatus[None]) -> None:
        bodies = self._forwarder is not None
        started = False
        try:
            async with sandbox.listen(PROXY_PORT) as listener, open_tasks() as tasks:
                resolver = Resolver(tasks, self._threads, _LOOKUPS)
                gate = Gate(sandbox, self._audit, resolver, self._secrets, self._forwarder, self._held, self._pipes)
                serving = Serving(gate.answer, CONNECTIONS, self._shared, bodies=bodies, on_unreadable=gate.unreadable)
                started = True
                task_status.started()
                await serve(listener, serving)
        except (ListeningFailed, SandboxLost) as error:
            if not started:
                raise StartFailed(*error.problem) from error
            self._audit.note("network.lost", sandbox=sandbox.id, reason=str(error))


class Gate:
    """Answers the requests of one sandbox to the proxy."""

    def __init__(
        self,
        sandbox: Sandbox,
        audit: Audit,
        resolver: Resolver,
        secrets: Sequence[Secret],
        forwarder: "Forwarder | None",
        held: Set[str],
        pipes: anyio.Semaphore,
    ) -> None:
        self._sandbox = sandbox.id
        self._destinations = sandbox.policy.network.destinations
        self._audit = audit
        self._resolver = resolver
        self._secrets = secrets
        self._forwarder = forwarder
        self._held = held
        self._pipes = pipes
        self._refused = 0
        self._turn = anyio.Lock()

    async def answer(self, request: Request, reply: Reply) -> None:
        """Answers one request."""
        if self._sandbox in self._held:
            reason = "libraries are being installed, and only their index can be reached; try again later"
            raise await self._refusal(request, reason)
        if request.method == "CONNECT":
            await self._tunnel(request, reply)
        elif self._forwarder is None or not await self._forwarded(self._forwarder, request, reply):
            raise await self._refusal(request, "only CONNECT is served here; use https")

    async def unreadable(self, seen: bytes) -> None:
        """Refuses an invalid request, or one with a body that is not allowed."""
        reason = "this is not a valid request; send CONNECT host:port without a body"
        raise await self._refused_as("", seen.decode("latin-1"), reason)

    async def _tunnel(self, request: Request, reply: Reply) -> None:
        target = request.target
        try:
            host, port = read_authority(target)
        except ValueError:
            raise await self._refusal(request, f"{quoted(target)} is not a host with a port; {_STEP}") from None
        if not grants(self._destinations, host, port):
            raise await self._refusal(request, f"{quoted(target)} is not granted; {_STEP}")
        addresses = await self._checked(request, host, port, self._destinations)
        async with await connect(host, addresses, port) as upstream:
            stream, early = await reply.switch()
            if early:
                await upstream.send(early)
            await carry(stream, upstream, IDLE, self._pipes, reply.moved)

    async def _forwarded(self, forwarder: "Forwarder", request: Request, reply: Reply) -> bool:
        """Answers a request to a destination that has secrets; returns false for all others."""
        from .forwarding import METHODS, wanted

        found = wanted(request.target, self._secrets)
        if found is None:
            return False
        if request.method not in METHODS:
            raise await self._refusal(request, f"{quoted(request.method)} is not served here; use {METHODS[0]} or POST")
        # A destination that a secret names counts as named in network.domains.
        destinations = [*self._destinations, *(secret.destination for secret in found.secrets)]
        host = read_host(f"[{found.host}]" if ":" in found.host else found.host)
        addresses = await self._checked(request, host, found.port, destinations)
        await forwarder.forward(request, reply, found, addresses)
        return True

    async def _checked(
        self, request: Request, host: str | IPAddress, port: int, destinations: Sequence[Destination]
    ) -> list[str]:
        """The addresses of a granted host; it is refused if one of them must not be connected to."""
        addresses = await self._resolver.resolve(host, port)
        if not all(opens(destinations, host, address, port, is_elsewhere) for address in addresses):
            where = "an address that is not public, or is this machine's own"
            reason = f"{quoted(str(host))} is at {where}; add the address to network.domains, too"
            raise await self._refusal(request, reason)
        return addresses

    async def _refusal(self, request: Request, reason: str) -> Refused:
        return await self._refused_as(request.method, request.target, reason)

    async def _refused_as(self, method: str, target: str, reason: str) -> Refused:
        """Logs a refusal, and returns the error for it."""
        self._refused += 1
        if self._refused > _FREE:
            async with self._turn:
                await anyio.sleep(_PENALTY)
        self._audit.note("network.refused", sandbox=self._sandbox, method=method, target=target, reason=reason)
        return Refused(403, reason)
