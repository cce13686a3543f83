"""Clients of the older protocol that gave way are forgotten by the package too, whoever else sends requests."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest
from mcp.server.lowlevel.server import Server
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llm_sandbox_mcp.network import sharing
from llm_sandbox_mcp.server import handshakes
from llm_sandbox_mcp.server.access import names_of

pytestmark = pytest.mark.anyio

INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Slow:
    """Between the two: ends no session while it is stuck."""

    stuck = False

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.stuck and scope["method"] == "DELETE":
            await anyio.sleep_forever()
        await self._app(scope, receive, send)


class Site:
    """The package's own application, which has room for one client more than are remembered."""

    def __init__(self, application: Starlette) -> None:
        self._application = application

    async def ask(
        self,
        host: str = "localhost",
        session: str = "",
        path: str = "/mcp",
        address: str = "10.0.0.1",
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> tuple[int, str]:
        """The status, and the id of the session; `meanwhile` is done once the status is known."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
        headers = {
            "host": host,
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
            **({"mcp-session-id": session} if session else {}),
        }
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": (address, 1),
            "server": ("10.0.0.2", 80),
        }
        answers: list[tuple[int, str]] = []

        parts: list[Message] = [{"type": "http.request", "body": body}]

        async def receive() -> Message:
            if not parts:
                await anyio.sleep_forever()
            return parts.pop()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answers.append((message["status"], Headers(raw=message["headers"]).get("mcp-session-id", "")))
                if meanwhile is not None:
                    await meanwhile()

        await self._application(scope, receive, send)
        (answer,) = answers
        return answer

    async def shake_hands(
        self, meanwhile: Callable[[], Awaitable[object]] | None = None, address: str = "10.0.0.1"
    ) -> str:
        status, session = await self.ask(meanwhile=meanwhile, address=address)
        assert (status, bool(session)) == (200, True)
        return session

    async def remembers(self, session: str) -> bool:
        status, _ = await self.ask(session=session)
        return status != 404


@pytest.fixture
def clients() -> int:
    """Clients that are remembered."""
    return 1


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch, clients: int) -> AsyncIterator[Site]:
    monkeypatch.setattr(handshakes, "CLIENTS", clients)
    monkeypatch.setattr(sharing, "SETTLED", 0.0)
    settings = names_of(())
    application = Server[object]("test").streamable_http_app(
        transport_security=settings, max_sessions=clients + 1, json_response=True
    )
    application.add_middleware(Slow)
    application.add_middleware(handshakes.Handshakes, settings.allowed_hosts[0])
    async with application.router.lifespan_context(application):
        yield Site(application)


@pytest.mark.parametrize(("host", "path"), [("evil.example", "/mcp"), ("localhost", "/nowhere")])
async def test_a_request_that_is_refused_keeps_no_client_that_gave_way(site: Site, host: str, path: str) -> None:
    first = await site.shake_hands()
    # This one takes its place; before its own request ends, another one does, which is refused.
    second = await site.shake_hands(lambda: site.ask(host, path=path))
    assert [await site.remembers(first), await site.remembers(second)] == [False, True]
    for _ in range(5):
        await site.shake_hands()


async def test_room_is_made_later_if_there_was_no_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await site.shake_hands()
    with monkeypatch.context() as hurried:
        hurried.setattr(handshakes, "_PATIENCE", 0.0)
        hurried.setattr(Slow, "stuck", True)
        await site.shake_hands()
    assert await site.remembers(first)
    # There is no room for one more, but this is what makes it.
    assert await site.ask() == (503, "")
    assert not await site.remembers(first)
    for _ in range(5):
        await site.shake_hands()


@pytest.mark.parametrize("clients", [3])
async def test_addresses_of_one_network_of_ipv6_replace_each_other(site: Site) -> None:
    other = await site.shake_hands(address="192.0.2.1")
    same = [await site.shake_hands(address=f"2001:db8::{number}") for number in range(3)]
    assert await site.remembers(other)
    assert [await site.remembers(session) for session in same] == [False, True, True]
