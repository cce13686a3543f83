"""Hundreds of clients that connect and then do nothing, or never read their answers: other clients are still served."""

import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp import floods
from llm_sandbox_mcp.server import bodies, connections

from . import serving
from .results import answer
from .serving import Server, start, stop

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded")]

FEW = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *serving.SERVE]
IMPATIENT = """
import sys
from llm_sandbox_mcp.server import connections, transports
connections.UNREAD = 1.0
connections.STALLED = 0.5
connections.WHOLE = 2.0
transports.CLIENTS = 3
from llm_sandbox_mcp.__main__ import main
sys.exit(main())
"""
MODERN = "2026-07-28"
BOUND = 90.0
ASKED = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\ncontent-length: 3\r\n\r\n{}\n"
)


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, profile: Path, command: list[str]) -> Iterator[Server]:
    monkeypatch.setattr(serving, "SERVE", command)
    server = start(profile)
    try:
        yield server
    finally:
        said = stop(server)
    assert not re.search("Traceback|ERROR", said), said


@pytest.fixture(scope="module")
def profile(profile: Path) -> Path:
    """A profile without warm sandboxes, whose files are opened and closed at unpredictable times."""
    profile.write_text(profile.read_text() + "[pool]\nlanguages = []\n")
    return profile


def connect(server: Server) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=BOUND)


def files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


async def at_most(number: int, server: Server) -> None:
    """Waits until the server has at most so many files open."""
    while files(server) > number:  # noqa: ASYNC110 - there is no event to wait for
        await anyio.sleep(0.05)


def disconnected(client: socket.socket) -> bool:
    """Waits until the server ends a connection, perhaps after an answer with the reason."""
    with suppress(ConnectionResetError):
        while client.recv(4096):
            pass
    return True


async def works(server: Server) -> bool:
    async with server.connect(MODERN) as client:
        found = await answer(client, "execute_code", code="print(6 * 7)", keep_session=False)
    return bool(found["stdout"] == "42\n")


async def test_hundreds_of_silent_clients_are_disconnected_and_leave_files_for_sandboxes(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(monkeypatch, profile, FEW) as server, ExitStack() as silent:
        assert await works(server)
        before = files(server)
        with anyio.fail_after(BOUND):
            clients = []
            for _ in range(300):
                clients.append(silent.enter_context(connect(server)))
                assert files(server) < 128
            # Clients that are not accepted yet are accepted once others are disconnected, and are disconnected in turn.
            for client in clients:
                assert await anyio.to_thread.run_sync(disconnected, client)
            await at_most(before + 4, server)
            assert await works(server)


async def test_a_client_beyond_the_limit_gets_status_503(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, profile, FEW) as server, ExitStack() as others:
        for _ in range(32):
            others.enter_context(connect(server))
        with connect(server) as last:
            last.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert last.recv(4096).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")


async def test_a_client_that_never_reads_is_disconnected_and_others_are_served(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = [sys.executable, "-c", IMPATIENT, *serving.SERVE[3:]]
    with served(monkeypatch, profile, impatient) as server, connect(server) as deaf:
        assert await works(server)
        before = files(server)
        deaf.setblocking(False)
        with anyio.fail_after(BOUND):
            await ask_until_disconnected(deaf)
            assert await works(server)
            await at_most(before - 1, server)


ODD = {
    "no HTTP": (b"\x16\x03\x01\r\n\r\n", b" 400 "),
    "a host that is not served": (b"GET /sse HTTP/1.1\r\nhost: %d.test\r\n\r\n", b" 421 "),
    "a page that is not served": (
        b"GET /sse HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: http://%d.test\r\n\r\n",
        b" 403 ",
    ),
    "no host": (b"GET /sse HTTP/1.1\r\nhost: \r\n\r\n", b" 421 "),
    "another protocol": (
        b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: %d\r\n\r\n",
        b" 200 ",
    ),
}


@pytest.mark.parametrize(("raw", "status"), ODD.values(), ids=ODD)
async def test_requests_that_are_refused_do_not_fill_the_log(profile: Path, raw: bytes, status: bytes) -> None:
    server = start(profile)
    try:
        for number in range(200):
            with connect(server) as client:
                client.sendall(raw.replace(b"%d", str(number).encode()))
                assert status in client.recv(4096)
    finally:
        lines = stop(server).splitlines()
    assert floods.LINES <= len(lines) < 200, lines
    assert any("more of this kind are counted" in line for line in lines)


CUT = {
    "head": b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ",
    "body": ASKED[:-2],
    "body of unknown length": ASKED.replace(b"content-length: 3", b"transfer-encoding: chunked")[:-3] + b"3\r\n{",
}


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT)
async def test_a_client_that_stops_within_a_request_is_disconnected(
    profile: Path, monkeypatch: pytest.MonkeyPatch, cut: bytes
) -> None:
    impatient = [sys.executable, "-c", IMPATIENT, *serving.SERVE[3:]]
    with served(monkeypatch, profile, impatient) as server, connect(server) as slow:
        # The cut request is not the first one of the connection, which has a different time limit.
        slow.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        received = b""
        while not received.endswith(b"\r\n\r\nok\n"):
            more = slow.recv(4096)
            assert more, received
            received += more
        slow.sendall(cut)
        with suppress(ConnectionResetError):
            assert slow.recv(4096) == b""
        assert await works(server)


async def test_a_client_that_sends_a_request_byte_by_byte_is_disconnected(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = [sys.executable, "-c", IMPATIENT, *serving.SERVE[3:]]
    with served(monkeypatch, profile, impatient) as server, connect(server) as slow:
        slow.sendall(ASKED.replace(b"content-length: 3", b"content-length: 4000000")[:-3])
        slow.settimeout(0.1)
        with suppress(ConnectionError):
            for _ in range(int(BOUND / 0.1)):
                slow.sendall(b" ")
                with suppress(TimeoutError):
                    assert slow.recv(4096) == b""
                    break
            else:
                pytest.fail("it was not disconnected")
        assert await works(server)


LARGE = 4 << 20
UPLOAD = b"POST /files/x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 3\r\n\r\n{}\n"


@pytest.mark.parametrize(("request_", "size"), [(ASKED, LARGE), (UPLOAD, 8 * LARGE)], ids=["mcp", "upload"])
async def test_a_hundred_unfinished_bodies_take_little_memory_and_others_are_served(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: bytes, size: int
) -> None:
    own = tmp_path / "profile.toml"
    own.write_text(profile.read_text() + "[http]\nexecute_code = true\n")
    head = request_.replace(b"content-length: 3", b"content-length: %d" % size)[:-3]
    with served(monkeypatch, own, serving.SERVE) as server, ExitStack() as others, ThreadPoolExecutor(100) as threads:
        assert await works(server)
        before = memory(server)
        clients = [others.enter_context(connect(server)) for _ in range(100)]
        sending = [threads.submit(send_all_but_one_byte, client, head, size) for client in clients]
        with anyio.fail_after(BOUND):
            while (said := await anyio.to_thread.run_sync(ask, server, ASKED, LARGE)).startswith(b"HTTP/1.1 503 "):
                assert re.search(rb"\r\nretry-after: \d+\r\n", said)
        assert said.startswith(b"HTTP/1.1 400 ")  # it is no message of MCP
        assert memory(server) - before < bodies.ROOM
        for client in clients:
            with suppress(OSError):  # the server has ended the connection
                client.shutdown(socket.SHUT_RDWR)
        for sent in sending:
            sent.result()


def send_all_but_one_byte(client: socket.socket, head: bytes, size: int) -> None:
    with suppress(OSError):
        client.sendall(head + b" " * (size - 1))


def ask(server: Server, request: bytes, size: int) -> bytes:
    """Sends a whole request with a body of this size, and returns the head of the answer."""
    with connect(server) as client:
        client.sendall(request.replace(b"content-length: 3", b"content-length: %d" % size)[:-3] + b" " * size)
        return client.recv(4096)


def memory(server: Server) -> int:
    """The most bytes of memory that the server had so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found
    return int(found[1]) << 10


async def test_the_number_of_remembered_clients_is_limited(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = [sys.executable, "-c", IMPATIENT, *serving.SERVE[3:]]
    with served(monkeypatch, profile, impatient) as server:
        said = [shake_hands(server) for _ in range(4)]
        assert [head.split(b" ", 2)[1] for head in said] == [b"200", b"200", b"200", b"503"]
        assert await works(server)


def shake_hands(server: Server) -> bytes:
    """Connects as a client of the older protocol, and leaves at once; returns the head of the answer."""
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
    ).encode()
    head = re.sub(rb"mcp-protocol-version.*?\r\ncontent-length: 3", b"content-length: %d" % len(body), ASKED[:-3])
    with connect(server) as client:
        client.sendall(head + body)
        return client.recv(4096)


async def ask_until_disconnected(deaf: socket.socket) -> None:
    """Sends requests without reading any answer until the server ends the connection."""
    while True:
        await anyio.wait_writable(deaf)
        try:
            deaf.send(ASKED * 100)
        except BlockingIOError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return


def test_no_part_of_an_answer_waits_until_the_previous_part_is_acknowledged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections.prepare(listener)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
