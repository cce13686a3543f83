"""A real server process on a port of this machine: clients of three kinds, and requests that are refused."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.broken_text import CUT, ENCODED, NOTE, PRINTED
from tests.effort import tries

from .processes import gone, watch_children
from .results import answer
from .serving import Server, start
from .wire import CLIENT, message

pytestmark = pytest.mark.anyio

SOON = 20.0
"""Seconds. Usually it takes two; something that never ends by itself would take longer."""
MODERN = "2026-07-28"
WAYS = [MODERN, "legacy", "sse"]
ENDLESS = "print('on', flush=True)\nwhile True: pass"
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
PLACES = [("POST", "/mcp"), ("GET", "/mcp"), ("GET", "/sse"), ("POST", "/messages/")]

CALLERS = """
import json, os, sys
import anyio
from mcp import Client
from mcp.client.sse import sse_client

def say(what):
    print(os.getpid(), what, end="", flush=True)

async def main(url, way, session_id, seconds, code):
    async def progressed(progress, total, message):
        say(message)

    server = sse_client(url + "/sse") if way == "sse" else url + "/mcp"
    async with Client(server, mode="legacy" if way == "sse" else way) as client:
        arguments = {"code": code, "session_id": session_id, "timeout_seconds": seconds}
        await client.call_tool("execute_code", arguments, progress_callback=progressed)

clients = []
for line in sys.stdin:
    if not (client := os.fork()):
        say("begun\\n")
        try:
            anyio.run(main, *json.loads(line))
        finally:
            say("over\\n")
            os._exit(0)
    clients.append(client)
for client in clients:  # until then, the number of one that was killed is not given to another process
    os.waitpid(client, 0)
"""
"""Clients in separate processes, which can be killed; each is a copy of a process that has loaded all that it needs."""


SEVERAL = [
    sys.executable,
    "-c",
    """
import contextlib, io, os, sys
from llm_sandbox_mcp import cli

profile, *calls = sys.argv[1:]
for options in calls:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            status = cli.main(["serve", "--transport", "http", "--profile", profile, *options.split()], os.environ)
        except SystemExit as ended:
            status = ended.code
    sys.stderr.write(f"{status}: {said.getvalue()}")
""",
]
"""Serves with several options, one after the other, in one process; prints each status before what was said."""


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(90):
        yield


Callers = Callable[[Server, str, str, float, str], AbstractContextManager[int]]


async def run(client: Client, code: str, **arguments: Any) -> dict[str, Any]:
    return await answer(client, "execute_code", code=code, **arguments)


async def ids(client: Client) -> set[str]:
    listed = await answer(client, "manage_session", action="list")
    return {session["session_id"] for session in listed["sessions"]}


async def leased(client: Client) -> int:
    """How many sandboxes are in use."""
    pool: dict[str, int] = (await answer(client, "manage_session", action="list"))["pool"]
    return pool["leased"]


@pytest.fixture(scope="module")
def callers() -> Iterator[Callers]:
    with subprocess.Popen(
        [sys.executable, "-c", CALLERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:

        @contextmanager
        def caller(server: Server, way: str, session_id: str, seconds: float, code: str) -> Iterator[int]:
            """Has a client call, and waits until it is in the middle of a run; kills it at the end if it still runs."""
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps([server.url, way, session_id, seconds, code]) + "\n")
            process.stdin.flush()
            while " begun" not in (line := process.stdout.readline()):
                assert line
            pid = int(line.split()[0])
            try:
                while line != f"{pid} on\n":
                    line = process.stdout.readline()
                    assert line != f"{pid} over\n"
                yield pid
            finally:
                os.kill(pid, signal.SIGKILL)

        yield caller


@pytest.mark.parametrize("way", WAYS)
async def test_variables_persist_between_calls_and_between_clients(server: Server, way: str) -> None:
    async with server.connect(way) as client:
        first = await run(client, "x = 20")
        second = await run(client, "x += 2; x", session_id=first["session_id"])
        assert (second["result"], second["session_state"]) == ("22", "kept")
    async with server.connect(way) as client:
        assert (await run(client, "x", session_id=first["session_id"]))["result"] == "22"


class Cutting(httpx2.AsyncHTTPTransport):
    """Sends half of an emoji where code has <half>: the package's own client cannot."""

    def __init__(self, half: bytes) -> None:
        super().__init__()
        self._half = half

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = (await request.aread()).replace(b"<half>", self._half)
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
        cut = httpx2.Request(
            request.method, request.url, headers=headers, content=content, extensions=request.extensions
        )
        return await super().handle_async_request(cut)


@pytest.mark.parametrize("half", ENCODED.values(), ids=ENCODED)
@pytest.mark.parametrize("way", WAYS)
async def test_code_with_half_an_emoji_runs(server: Server, way: str, half: bytes) -> None:
    def cutting(*_: Any, **settings: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=Cutting(half), **settings)

    async with AsyncExitStack() as stack:
        if way == "sse":
            transport = sse_client(f"{server.url}/sse", httpx_client_factory=cutting)
        else:
            http = await stack.enter_async_context(cutting(timeout=30))
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        client = await stack.enter_async_context(Client(transport, mode="legacy" if way == "sse" else way))
        ran = await run(client, CUT.format("<half>"))
    assert (ran["stdout"], ran["notes"]) == (PRINTED, [NOTE])


@pytest.mark.parametrize("way", WAYS)
async def test_output_streams_as_progress_and_a_cancelled_request_keeps_the_session(server: Server, way: str) -> None:
    heard = ""
    printed = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        nonlocal heard
        heard += message or ""
        printed.set()

    async with server.connect(way) as client:
        session_id = (await run(client, "x = 7"))["session_id"]
        async with anyio.create_task_group() as tasks:

            async def execute() -> None:
                arguments = {"code": ENDLESS, "session_id": session_id}
                await client.call_tool("execute_code", arguments, progress_callback=progressed)

            tasks.start_soon(execute)
            await printed.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(SOON):
            after = await run(client, "x", session_id=session_id)
    assert heard == "on\n"
    assert (after["result"], after["session_state"]) == ("7", "kept")


@pytest.mark.parametrize("way", [MODERN, "legacy"])
async def test_a_host_that_gives_up_a_call_after_five_seconds_loses_nothing(server: Server, way: str) -> None:
    async with server.connect(way) as client:
        session_id = (await run(client, "import time"))["session_id"]
        arguments = {"code": "time.sleep(6)\n6 * 7", "session_id": session_id}
        with pytest.raises(MCPError, match=r"(?i)timed out"):
            await client.call_tool("execute_code", arguments, read_timeout_seconds=5)
        [session] = (await answer(client, "manage_session", action="list", session_id=session_id))["sessions"]
        [run_id] = session["run_ids"]
        ended = (await answer(client, "manage_session", action="wait", run_id=run_id))["run"]
        assert (ended["status"], ended["result"]) == ("ok", "42")


@pytest.mark.parametrize("way", [MODERN, "sse"])
async def test_a_run_of_a_killed_client_that_nobody_can_find_ends_with_its_session(
    server: Server, callers: Callers, way: str
) -> None:
    async with server.connect(MODERN) as client:
        used = await leased(client)
        with callers(server, way, "", 300, ENDLESS) as caller:
            os.kill(caller, signal.SIGKILL)
            with anyio.fail_after(SOON):
                while await leased(client) > used:
                    await anyio.lowlevel.checkpoint()


# Runs of a session wait for each other: once the next run has answered, the run of the killed client has ended.
@pytest.mark.parametrize("way", [MODERN, "sse"])
async def test_a_client_that_is_killed_ends_its_run(server: Server, callers: Callers, way: str) -> None:
    async with server.connect(MODERN) as client:
        session_id = (await run(client, "x = 7"))["session_id"]
        with callers(server, way, session_id, 60, ENDLESS) as caller:
            os.kill(caller, signal.SIGKILL)
            with anyio.fail_after(SOON):
                assert (await run(client, "x", session_id=session_id))["result"] == "7"


async def test_the_run_of_a_killed_2025_client_ends_at_its_timeout(server: Server, callers: Callers) -> None:
    async with server.connect(MODERN) as client:
        session_id = (await run(client, "x = 7"))["session_id"]
        with callers(server, "legacy", session_id, 1.5, ENDLESS) as caller:
            os.kill(caller, signal.SIGKILL)
            with anyio.fail_after(SOON):
                assert (await run(client, "x", session_id=session_id))["result"] == "7"


async def test_a_2025_client_that_deletes_its_connection_ends_its_run(server: Server) -> None:
    url = f"{server.url}/mcp"
    async with server.connect(MODERN) as other, httpx2.AsyncClient(headers=JSON, timeout=30) as http:
        session_id = (await run(other, "x = 7"))["session_id"]
        opened = await http.post(url, content=message("initialize", CLIENT, 1))
        http.headers |= {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        await http.post(url, content=message("notifications/initialized"))
        arguments = {"code": ENDLESS, "session_id": session_id, "timeout_seconds": 60}
        request = {"name": "execute_code", "arguments": arguments, "_meta": {"progressToken": 1}}
        async with http.stream("POST", url, content=message("tools/call", request, 2)) as stream:
            lines = stream.aiter_lines()
            while "on\\n" not in await anext(lines):
                pass
            assert (await http.delete(url)).status_code == 200
            with anyio.fail_after(SOON):
                assert (await run(other, "x", session_id=session_id))["result"] == "7"


@pytest.mark.parametrize("way", WAYS)
async def test_two_clients_at_once_do_not_see_each_others_sessions(server: Server, way: str) -> None:
    async with server.connect(way) as one, server.connect(way) as other:
        mine = (await run(one, "1"))["session_id"]
        theirs = (await run(other, "1"))["session_id"]
        # The 2026 protocol has no connections, so a session is shown only to requests that name it.
        assert await ids(one) == ({mine} if way != MODERN else set())
        assert await ids(other) == ({theirs} if way != MODERN else set())


@pytest.mark.parametrize(("method", "path"), PLACES)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "example.com"}, 421),
        ({"host": "127.0.0.1.example.com:80"}, 421),
        ({"origin": "http://example.com"}, 403),
        ({"origin": "https://localhost.example.com"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_requests_for_another_host_or_from_its_pages_are_refused(
    server: Server, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    async with httpx2.AsyncClient(headers=JSON) as http:
        refused = await http.request(method, f"{server.url}{path}", headers=headers, content=b"{}")
    assert refused.status_code == status


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]"])
async def test_requests_that_name_this_machine_are_accepted(server: Server, name: str) -> None:
    port = server.url.rpartition(":")[2]
    headers = {"host": f"{name}:{port}", "origin": f"http://{name}:5173"}
    async with httpx2.AsyncClient() as http, http.stream("GET", f"{server.url}/sse", headers=headers) as stream:
        assert stream.status_code == 200


async def test_a_body_that_is_too_large_is_refused_on_both_transports(server: Server) -> None:
    body = message("tools/call", {"name": "execute_code", "arguments": {"code": "#" * (5 << 20)}}, 1)
    async with httpx2.AsyncClient(headers=JSON) as http, http.stream("GET", f"{server.url}/sse") as stream:
        endpoint = ""
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                endpoint = line.removeprefix("data: ")
                break
        for path in ("/mcp", endpoint):
            refused = await http.post(f"{server.url}{path}", content=body)
            assert refused.status_code == 413


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_server_while_clients_of_all_kinds_run_code(
    profile: Path, callers: Callers, number: signal.Signals
) -> None:
    server = start(profile)
    try:
        code = "import subprocess\nsubprocess.Popen(['sleep', '1000'])\n" + ENDLESS
        with ExitStack() as stack:
            for way in WAYS:
                stack.enter_context(callers(server, way, "", 60, code))
            with watch_children(server.process.pid) as watched, anyio.fail_after(SOON):
                server.process.send_signal(number)
                await server.ended()
                await gone(watched)
        assert server.process.returncode == 0
        assert server.process.stderr
        assert "Traceback" not in server.process.stderr.read().decode()
    finally:
        server.process.kill()
        server.process.communicate()


async def test_an_address_that_is_not_allowed_or_not_available_is_refused_in_one_line(profile: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = {
            ("--host", "0.0.0.0"): "to serve other machines, set http.token_file in the profile",
            ("--host", "::"): "host ::: must be a loopback address",
            ("--host", "example.com"): "host example.com: not an IP address; give one such as 127.0.0.1",
            ("--port", port): f"port {port}: cannot listen there: Address already in use; choose another",
            ("--port", "70000"): "port 70000: must be from 0 to 65535; choose another, or 0 for a free one",
            ("--port", "http"): "--port: invalid int value: 'http'",
        }
        done = await anyio.run_process([*SEVERAL, str(profile), *map(" ".join, refused)], check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    for reason, line in zip(refused.values(), done.stderr.decode().splitlines(), strict=True):
        assert reason in line
        assert line.startswith("2: ")


async def test_a_notification_that_comes_when_its_session_ends_does_not_close_the_connection(server: Server) -> None:
    note = message("notifications/cancelled", {"requestId": 7})
    url = f"{server.url}/mcp"
    # Whether one comes at that moment is chance; one in about five does.
    async with httpx2.AsyncClient(headers=JSON) as client:
        for _ in range(tries(30)):
            begun = await client.post(url, content=message("initialize", CLIENT, 1))
            names = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            statuses: list[int] = []

            async def ask(
                method: str, names: dict[str, str], statuses: list[int], content: bytes | None = None
            ) -> None:
                statuses.append((await client.request(method, url, headers=names, content=content)).status_code)

            async with anyio.create_task_group() as tasks:
                for method, content in (("POST", note), ("POST", note), ("DELETE", None), ("POST", note)):
                    tasks.start_soon(ask, method, names, statuses, content)
            assert {*statuses} <= {200, 202, 404}
