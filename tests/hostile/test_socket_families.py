"""Attack: socket families that are kernel modules or reach the host. Outcome: refused."""

import json

import pytest

from tests.hostile.conftest import Arena, Tolerated

pytestmark = pytest.mark.anyio

ALLOWED = {1, 2, 10}
"""AF_UNIX, AF_INET and AF_INET6."""


@pytest.mark.in_turns
async def test_only_ordinary_sockets_can_be_made(arena: Arena, tolerated: Tolerated) -> None:
    output = await arena.check("""
import json, socket
made = []
for family in range(64):
    for kind in (1, 2, 3, 4, 5, 10):
        for protocol in (0, 1, 6, 17, 58, 132, 255, 262):
            for make in (socket.socket, socket.socketpair):
                try:
                    make(family, kind, protocol)
                    made.append([family, kind, protocol])
                except (OSError, TypeError):
                    pass
print(json.dumps(made))
""")
    made = json.loads(output)
    families = {family for family, _, _ in made}
    assert families >= ALLOWED
    odd = {
        f"family {family}, kind {kind}, protocol {protocol}"
        for family, kind, protocol in made
        if family in ALLOWED - {1} and (kind not in (1, 2) or protocol not in (0, 6, 17))
    }
    tolerated({f"family {family}" for family in families - ALLOWED} | odd)


async def test_ordinary_sockets_work_on_the_sandboxs_loopback(arena: Arena) -> None:
    assert (
        await arena.check("""
import socket
with socket.create_server(('127.0.0.1', 0)) as server, socket.create_connection(server.getsockname()) as one:
    other, _ = server.accept()
    one.sendall(b'hello')
    print(other.recv(5).decode())
""")
        == "hello\n"
    )
