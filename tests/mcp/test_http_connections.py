"""Hundreds of clients that connect and then do nothing, or never read their answers: other clients are still served.

It takes long because many cases start a server with a limit of their own, and fill its memory or wait for its deadlines.
"""

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
import httpx2
import pytest

from llm_sandbox_mcp.host import records
from llm_sandbox_mcp.server import bodies, connections

from .results import answer
from .serving import SERVE, Server, launch, start, stop

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded")]

FEW = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh"]
MOST = 32
"""Connections that a server can have then."""


def with_times(**times: float | str) -> list[str]:
    """The command of a server with other values for some constants."""
    lines = [f"{name.replace('__', '.')} = {value}" for name, value in times.items()]
    program = f"""
import sys
from llm_sandbox_mcp.network import sharing
from llm_sandbox_mcp.server import connections, handshakes, memory, transports
{chr(10).join(lines)}
from llm_sandbox_mcp.__main__ import main
sys.exit(main())
"""
    return [sys.executable, "-c", program, *SERVE[3:]]


IMPATIENT = with_times(connections__UNREAD=1.0, connections__STALLED=0.5, connections__WHOLE=2.0)
PATIENT = with_times(connections__SILENT=1000.0, sharing__SETTLED=1000.0)
SETTLED = with_times(connections__SILENT=1000.0, sharing__SETTLED=0.0)
"""Whoever does nothing is idle at once."""
MODERN = "2026-07-28"
BOUND = 90.0
ASKED = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\ncontent-length: 3\r\n\r\n{}\n"
)
HEALTH = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def posted(method: str, **params: object) -> bytes:
    """A request of the 2026 protocol, as bytes of HTTP."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}})
    name = f"mcp-name: {params['name']}\r\n" if "name" in params else ""
    head = (
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"accept: application/json, text/event-stream\r\nmcp-protocol-version: {MODERN}\r\n"
        f"mcp-method: {method}\r\n{name}content-length: {len(body)}\r\n\r\n"
    )
    return f"{head}{body}".encode()


LISTEN = posted("subscriptions/listen", notifications={"resourcesListChanged": True})


@contextmanager
def served(profile: Path, command: list[str]) -> Iterator[Server]:
    server = launch([*command, "--port", "0", "--profile", str(profile)])
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


@pytest.fixture(scope="module")
def rest(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile with the paths for callers without MCP."""
    rest = tmp_path_factory.mktemp("rest") / "rest.toml"
    rest.write_text(profile.read_text() + "[http]\nexecute_code = true\n")
    return rest


@pytest.fixture(scope="module")
def impatient(profile: Path) -> Iterator[Server]:
    with served(profile, IMPATIENT) as server:
        yield server


@pytest.fixture(scope="module")
def settled(profile: Path) -> Iterator[Server]:
    with served(profile, [*FEW, *SETTLED]) as server:
        yield server


@pytest.fixture(scope="module")
def files_served(rest: Path) -> Iterator[Server]:
    with served(rest, with_times(memory__PATIENCE=1.0)) as server:
        yield server


def connect(server: Server, own: str = "127.0.0.1", unread: int = 0) -> socket.socket:
    """Connects from an address of this machine; if `unread` is given, the kernel keeps so many bytes of answers."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    client = socket.socket()
    client.settimeout(BOUND)
    if unread:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, unread)
    client.bind((own, 0))
    client.connect((host, int(port)))
    return client


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


async def test_hundreds_of_silent_clients_are_disconnected_and_leave_files_for_sandboxes(profile: Path) -> None:
    with served(profile, [*FEW, *SERVE]) as server, ExitStack() as silent:
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


async def test_a_client_beyond_the_limit_gets_status_503(profile: Path) -> None:
    with served(profile, [*FEW, *PATIENT]) as server, ExitStack() as others:
        earlier = [others.enter_context(connect(server)) for _ in range(MOST)]
        with connect(server) as last:
            assert said(last, HEALTH).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            for client in earlier:
                assert healthy(client)


IDLE = {
    "nothing": b"",
    "an answered request": HEALTH,
    "a part of a head": HEALTH[:-2],
    "a part of a body": ASKED[:-2],
    "a stream of SSE": b"GET /sse HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "a stream of news": LISTEN,
}


async def test_connections_without_work_make_room_for_others_of_the_same_address(settled: Server) -> None:
    for raw in IDLE.values():
        with ExitStack() as others:
            earlier = []
            for _ in range(MOST):
                earlier.append(client := others.enter_context(connect(settled)))
                assert healthy(client)
                client.sendall(raw)
                if raw.endswith(b"\r\n\r\n") or raw is LISTEN:
                    assert b" 200 " in client.recv(4096)
            for _ in range(2):
                with connect(settled) as last:
                    assert healthy(last)
            assert await works(settled)
            assert disconnected(earlier[0])


async def test_connections_at_work_make_room_only_for_an_address_that_has_fewer(profile: Path) -> None:
    command = with_times(connections__SILENT=1000.0, sharing__SETTLED=0.0, transports__connections="lambda: 3")
    with served(profile, command) as server, ExitStack() as others:
        for _ in range(3):
            client = others.enter_context(connect(server))
            assert healthy(client)  # it is accepted, so what it sends is read first
            client.sendall(posted("tools/call", name="execute_code", arguments={"code": "while True: pass"}))
        with connect(server) as same:
            assert said(same, HEALTH).startswith(b"HTTP/1.1 503 ")
        with connect(server, "127.0.0.2") as other:
            assert healthy(other)


async def test_connections_without_a_request_make_room_before_streams(settled: Server) -> None:
    with ExitStack() as others:
        stream = others.enter_context(connect(settled))
        stream.sendall(IDLE["a stream of SSE"])
        begun = b""
        while b"session_id" not in begun or not begun.endswith(b"\r\n\r\n"):
            more = stream.recv(4096)
            assert more, begun
            begun += more
        kept = [others.enter_context(connect(settled)) for _ in range(3 * MOST)]
        assert healthy(kept[-1])
        # Its address for messages came with the answer, and nothing since; it would end now.
        stream.setblocking(False)
        with pytest.raises(BlockingIOError):
            stream.recv(4096)


async def test_a_client_that_never_reads_is_disconnected_and_others_are_served(impatient: Server) -> None:
    server = impatient
    with connect(server, unread=4096) as deaf:
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


async def test_requests_that_are_refused_do_not_fill_the_log(profile: Path) -> None:
    server = start(profile)
    try:
        for raw, status in ODD.values():
            for number in range(200):
                with connect(server) as client:
                    client.sendall(raw.replace(b"%d", str(number).encode()))
                    assert status in client.recv(4096)
    finally:
        lines = stop(server).splitlines()
    assert len(ODD) * records.LINES <= len(lines) < 200, lines
    assert sum("more of this kind are counted" in line for line in lines) >= len(ODD), lines


CUT = {
    "head": b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ",
    "body": ASKED[:-2],
    "body of unknown length": ASKED.replace(b"content-length: 3", b"transfer-encoding: chunked")[:-3] + b"3\r\n{",
}


async def test_a_client_that_stops_within_a_request_is_disconnected(impatient: Server) -> None:
    for cut in CUT.values():
        with connect(impatient) as slow:
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
    assert await works(impatient)


async def test_a_client_that_sends_a_request_byte_by_byte_is_disconnected(impatient: Server) -> None:
    with connect(impatient) as slow:
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
        assert await works(impatient)


LARGE = 4 << 20
UPLOAD = b"POST /files/x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 3\r\n\r\n{}\n"


@pytest.mark.parametrize(("request_", "size"), [(ASKED, LARGE), (UPLOAD, 8 * LARGE)], ids=["mcp", "upload"])
async def test_a_hundred_unfinished_bodies_take_little_memory_and_others_are_served(
    rest: Path, request_: bytes, size: int
) -> None:
    # As many as this: what the last client sends has its turn when each of them has sent as much.
    head = request_.replace(b"content-length: 3", b"content-length: %d" % size)[:-3]
    with served(rest, SERVE) as server, ExitStack() as others, ThreadPoolExecutor(100) as threads:
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


async def test_remembered_clients_make_room_for_others_and_those_that_were_used_last(profile: Path) -> None:
    with served(profile, with_times(handshakes__CLIENTS=3, sharing__SETTLED=0.0)) as server:
        async with server.connect("legacy") as client:
            assert (await answer(client, "manage_session", action="list"))["sessions"] == []
            heads = [shake_hands(server) for _ in range(10)]
            assert {head.split(b" ", 2)[1] for head in heads} == {b"200"}
            # It is still remembered; those that only shook hands made room for each other.
            assert (await answer(client, "manage_session", action="list"))["sessions"] == []
            assert [remembered(server, head) for head in heads] == [False] * 8 + [True] * 2
        assert await works(server)


def remembered(server: Server, head: bytes) -> bool:
    """Whether the server remembers the client that got this answer to its handshake."""
    found = re.search(rb"mcp-session-id: (\w+)", head)
    assert found
    with connect(server) as client:
        told = said(client, ASKED.replace(b"\r\n\r\n", b"\r\nmcp-session-id: %b\r\n\r\n" % found[1]))
    assert b" 400 " in told or b" 404 " in told
    return b" 400 " in told


def said(client: socket.socket, raw: bytes) -> bytes:
    """What the server says to a request."""
    client.sendall(raw)
    return client.recv(4096)


def healthy(client: socket.socket) -> bool:
    """Whether a request on this connection is served, with its whole answer."""
    told = said(client, HEALTH)
    while told.startswith(b"HTTP/1.1 200 ") and not told.endswith(b"\r\n\r\nok\n"):
        more = client.recv(4096)
        assert more, told
        told += more
    return told.startswith(b"HTTP/1.1 200 ")


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


ARTIFACT = 31 << 20
LARGEST = 4_100_000
"""Characters of a string that fits into a message."""


def write_large(server: Server, text: str) -> None:
    """Lets code write a file as large as an artifact can be."""
    code = f"n = open('large.bin', 'wb').write(b'{text}' * {ARTIFACT})"
    asked = json.dumps({"code": code, "session_id": "large"})
    with connect(server) as client:
        client.sendall(
            f"POST /execute_code/ HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(asked)}\r\n\r\n{asked}".encode()
        )
        assert client.recv(12).endswith(b"200")


def download(server: Server, path: str) -> socket.socket:
    """Asks for a file of this session, and reads nothing."""
    client = connect(server)
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-session-id: large\r\n\r\n".encode())
    return client


def status(client: socket.socket) -> int:
    """Waits for an answer, and leaves it unread."""
    return int(client.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL)[9:])


@pytest.mark.parametrize("path", ["/artifacts/large.bin", "/files/large.bin"])
def test_files_that_nobody_reads_take_little_memory(files_served: Server, path: str) -> None:
    server = files_served
    with ExitStack() as deaf:
        write_large(server, "x")
        clients = [deaf.enter_context(download(server, path)) for _ in range(20)]
        answers = [status(client) for client in clients]
        assert 200 in answers
        assert (503 in answers) == path.startswith("/files")
        memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
        assert memory
        assert int(memory[1]) < 450 << 10
        read = clients[answers.index(200)].makefile("rb").read
        assert read(ARTIFACT).endswith(b"x" * 1000)


def test_large_calls_of_clients_that_left_wait_for_a_session_in_bounded_memory(rest: Path) -> None:
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}

    def message(method: str, **params: object) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    def call(tool: str, **arguments: object) -> dict[str, object]:
        return message("tools/call", name=tool, arguments=arguments, _meta={"x": "x" * LARGEST})

    with (
        served(rest, with_times(memory__PATIENCE=0.2)) as server,
        httpx2.Client(base_url=server.url, headers=headers, timeout=BOUND) as client,
    ):
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        client.headers["Mcp-Session-Id"] = client.post("/mcp", json=message("initialize", **info)).headers[
            "mcp-session-id"
        ]
        found = re.search(r'"session_id":"(\w+)"', client.post("/mcp", json=call("execute_code", code="1")).text)
        assert found
        busy = {"session_id": found[1]}
        statuses = set()
        with client.stream("POST", "/mcp", json=call("execute_code", code="import time; time.sleep(50)", **busy)):
            for number in range(2, 62):
                asked = {**call("copy_file", path="x", content="x", **busy), "id": number}
                with client.stream("POST", "/mcp", json=asked) as answered:
                    statuses.add(answered.status_code)
            assert statuses == {200, 503}
            memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
            assert memory
            assert int(memory[1]) < 400 << 10


def test_an_artifact_that_is_replaced_while_it_is_sent_is_cut_and_not_mixed(files_served: Server) -> None:
    write_large(files_served, "x")
    with download(files_served, "/artifacts/large.bin") as client:
        assert status(client) == 200
        write_large(files_served, "y")
        _, _, content = client.makefile("rb").read().partition(b"\r\n\r\n")
    assert 0 < len(content) < ARTIFACT
    assert set(content) == {ord("x")}


def test_uploads_into_a_busy_session_whose_clients_leave_keep_nobody_out(rest: Path) -> None:
    code = json.dumps({"code": "import time; time.sleep(50)", "session_id": "busy"})
    busy = "HTTP/1.1\r\nhost: 127.0.0.1\r\nx-session-id: busy\r\ncontent-length: "
    with served(rest, [*FEW, *SETTLED]) as server, ExitStack() as running:
        runner = running.enter_context(connect(server))
        runner.sendall(f"POST /execute_code/ {busy}{len(code)}\r\n\r\n{code}".encode())
        for number in range(3 * MOST):
            with connect(server) as leaving:
                leaving.sendall(f"POST /files/{number} {busy}1\r\n\r\nx".encode())
        while True:  # until the server has seen that they are gone
            with connect(server) as client:
                client.sendall(HEALTH)
                if client.recv(12).endswith(b"200"):
                    break
        runner.setblocking(False)
        with pytest.raises(BlockingIOError):
            runner.recv(1)  # the code still runs
