"""Attack: ways around the proxy, and overload of it. Outcome: 403 and a line in the log, and nobody else notices."""

import atexit
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.conftest import Arena

GRANTED = socket.create_server(("127.0.0.1", 0), backlog=512)
"""A listener that the profile names; it never answers."""
atexit.register(GRANTED.close)
LIMITS = {"network": {"mode": "allow", "domains": (f"127.0.0.1:{GRANTED.getsockname()[1]}", "*.example")}}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("limits", [LIMITS], indirect=True, ids=["network"]),
]

ASK = """
import json, socket
def ask(raw, wait=10):
    with socket.create_connection(('127.0.0.1', 3128), wait) as one:
        one.sendall(raw)
        got = b''
        while b'\\r\\n\\r\\n' not in got:
            more = one.recv(1 << 16)
            if not more:
                break
            got += more
        return got.partition(b'\\r\\n')[0].decode()
def connect(target):
    return ask(b'CONNECT ' + target + b' HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
"""


@pytest.fixture(autouse=True)
def no_connection_left(arena: Arena) -> Iterator[None]:
    """Closes the connections that reached the granted port."""
    yield
    GRANTED.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            GRANTED.accept()[0].close()


def refusals(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name.endswith(".audit")]
    return [line for line in lines if line["event"] == "network.refused"]


async def test_every_way_around_the_allowed_names_gets_403_and_a_line_in_the_log(
    arena: Arena, caplog: pytest.LogCaptureFixture
) -> None:
    port = GRANTED.getsockname()[1]
    targets = [
        *(
            "127.0.0.1:22",
            "127.0.0.1:3128",
            "localhost:22",
            f"localhost:{port}",
            f"127.0.0.2:{port}",
            f"0.0.0.0:{port}",
        ),
        *(f"2130706433:{port}", f"0x7f000001:{port}", f"0177.0.0.1:{port}", f"127.1:{port}", f"127.0.0.1.:{port}"),
        *(f"[::1]:{port}", f"[::ffff:127.0.0.1]:{port}", f"[64:ff9b::7f00:1]:{port}", f"[2002:7f00:1::]:{port}"),
        *("10.0.0.1:443", "169.254.169.254:80", "metadata.google.internal:80", "[fd00:ec2::254]:80", "224.0.0.1:443"),
        *(f"user@127.0.0.1:{port}", f"127.0.0.1:{port}@evil.test:443", f"127.0.0.1:{port}#evil.test:443"),
        *(
            "evil.test\\0.example:443",
            "evil.test%00.example:443",
            "evil.test\\n.example:443",
            "evil.test\\t.example:443",
        ),
        *(
            "evil.test.example.:22",
            "example:443",
            ".example:443",
            "a..example:443",
            "*.example:443",
            "x" * 300 + ".example:443",
        ),
        *("", ":", ":443", "api.example", "api.example:", "api.example:0", "api.example:99999", "api.example:-1"),
        *("https://api.example/", "api.example:443/path", "\\xff.example:443", "http://api.example:443"),
    ]
    output = await arena.check(
        ASK
        + f"targets = {json.dumps(targets)}\n"
        + """
raw = [b'CONNECT ' + eval(f"b'{target}'") + b' HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' for target in targets]
raw += [method + b' http://127.0.0.1:22/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' for method in (b'GET', b'PUT', b'OPTIONS', b'TRACE')]
raw += [b'GET http://api.example/ HTTP/1.0\\r\\n\\r\\n', b'GET / HTTP/1.1\\r\\nHost: api.example\\r\\n\\r\\n', b'\\x05\\x01\\x00\\r\\n\\r\\n',
        b'\\x04\\x01\\x01\\xbb\\x7f\\x00\\x00\\x01\\x00\\r\\n\\r\\n', b'PRI * HTTP/2.0\\r\\n\\r\\n']
print(json.dumps([ask(one) for one in raw]))
""",
        timeout=25,
    )
    statuses = [line.split(" ")[1] if line else "" for line in json.loads(output)]
    assert set(statuses) == {"403"}, [*zip(targets, statuses, strict=False)]
    lines = refusals(caplog)
    assert len(lines) == len(statuses)
    assert len({line["sandbox"] for line in lines}) == 1
    assert all(line["reason"] for line in lines)


async def test_no_line_of_the_log_is_forged(arena: Arena, caplog: pytest.LogCaptureFixture) -> None:
    await arena.check(
        ASK
        + """
for raw in (b'CONNECT a\\n{"event": "forged"} HTTP/1.1\\r\\n\\r\\n', b'CONNECT a\\r{"event": "forged"}\\x1b[2J\\xe2\\x80\\xa8 HTTP/1.1\\r\\n\\r\\n',
            b'\\n{"event": "forged"}\\r\\n\\r\\n', b'{"event":"forged"} x HTTP/1.1\\r\\n\\r\\n'):
    ask(raw)
"""
    )
    texts = [record.getMessage() for record in caplog.records if record.name.endswith(".audit")]
    assert len(texts) == 4
    for text in texts:
        assert text.isprintable() and text.isascii()
        assert json.loads(text)["event"] == "network.refused"


async def test_connections_that_send_no_request_delay_nobody(arena: Arena) -> None:
    # More connections than a sandbox may have, kept open until the code ends: the neighbour's proxy has to answer
    # meanwhile.
    result = await arena.attack(
        ASK
        + """
import time
held = []
for number in range(300):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(('127.0.0.1', 3128))
    held.append(one)
time.sleep(0.5)
for one in held:
    try:
        one.send(b'CONNECT api.exam')
    except OSError:
        pass
print(len(held))
"""
    )
    assert result.stdout.text == "300\n", result
    answer = await execute(arena.service, f"{ASK}\nprint(connect(b'127.0.0.1:22'))", session_id=arena.neighbour)
    assert " 403 " in answer.stdout.text, answer


async def test_hundreds_of_connections_one_after_another_break_nothing(arena: Arena) -> None:
    result = await arena.attack(
        ASK
        + """
import os
# A third of them ask for what cannot be read, more than are refused without a pause.
for number in range(390):
    with socket.create_connection(('127.0.0.1', 3128), 20) as one:
        if number % 3 == 1:
            one.sendall(os.urandom(100))
        if number % 3 == 2:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')
print('done')
"""
    )
    assert result.stdout.text == "done\n", result


async def test_tunnels_that_are_left_half_open_end_with_the_sandbox(arena: Arena) -> None:
    port = GRANTED.getsockname()[1]
    result = await arena.attack(
        ASK
        + f"""
opened = []
for number in range(30):
    one = socket.create_connection(('127.0.0.1', 3128), 20)
    one.sendall(b'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    assert b' 200 ' in one.recv(1 << 16)
    one.shutdown(socket.SHUT_WR)
    opened.append(one)
print(len(opened))
"""
    )
    assert result.stdout.text == "30\n", result
    await arena.service.sessions.close(result.session_id)
    for _ in range(30):
        GRANTED.setblocking(True)
        GRANTED.settimeout(5)
        connection, _ = GRANTED.accept()
        with connection:
            connection.settimeout(5)
            assert connection.recv(1) == b""


async def test_endless_headers_and_unexpected_bodies_are_cut_off(arena: Arena) -> None:
    result = await arena.attack(
        ASK
        + """
def flood(start, piece):
    with socket.create_connection(('127.0.0.1', 3128), 10) as one:
        sent = 0
        try:
            one.sendall(start)
            while sent < 1 << 26:
                sent += one.send(piece)
        except OSError:
            pass
        return sent
for start in (b'CONNECT api.example:443 HTTP/1.1\\r\\nX: ', b'', b'CONNECT ', b'POST http://x/ HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 99999999\\r\\n\\r\\n'):
    assert flood(start, b'x' * 65536) < 1 << 26
print('cut')
""",
        timeout=25,
    )
    assert result.stdout.text == "cut\n", result


async def test_code_that_listens_instead_of_the_proxy_reaches_nobody(arena: Arena) -> None:
    # If the listener is a process of the code's user, code can kill it: then its sandbox loses the network.
    result = await arena.attack(
        ASK
        + """
import os, signal, time
for entry in os.listdir('/proc'):
    try:
        if entry.isdigit() and open(f'/proc/{entry}/comm').read() == 'perl\\n':
            os.kill(int(entry), signal.SIGKILL)
    except OSError:
        pass
said = ''
while not said:
    try:
        with socket.create_server(('127.0.0.1', 3128)) as place:
            place.settimeout(1)
            try:
                place.accept()
                said = 'somebody came'
            except TimeoutError:
                said = 'taken'
    except OSError:
        pass
    try:
        said = said or connect(b'127.0.0.1:22')[9:12]
    except OSError:  # it is about to end
        pass
print(said)
"""
    )
    assert result.stdout.text in ("taken\n", "403\n"), result
    if arena.backend == "embedded":
        assert result.stdout.text == "403\n"
