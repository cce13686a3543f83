"""What is left of the connections to a cluster that is silent, once their owner has let go of them."""

import socket
import ssl
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest
from kubernetes.aio.client import Configuration

from llm_sandbox_mcp.backends.kubernetes import connector
from llm_sandbox_mcp.backends.kubernetes.api import Api
from tests.engines.certificates import ensure

pytestmark = pytest.mark.anyio

SAID = {
    "nothing": b"",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "a whole answer": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        yield listener


@pytest.mark.parametrize("said", SAID)
async def test_no_connection_outlives_its_owner(listener: socket.socket, said: str) -> None:
    authority = ensure("proxy")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server.cert, authority.server.key)
    asked = anyio.Event()
    accepted: list[socket.socket] = []

    async def be_the_cluster() -> None:
        """Answers one request, and from then on nothing, not even that the connection is to end."""
        plain, _ = await anyio.to_thread.run_sync(listener.accept)
        plain.settimeout(5)
        wrapped = await anyio.to_thread.run_sync(lambda: context.wrap_socket(plain, server_side=True))
        await anyio.to_thread.run_sync(wrapped.recv, 1 << 16)
        wrapped.sendall(SAID[said])
        accepted.append(socket.socket(fileno=wrapped.detach()))
        asked.set()

    async def renew() -> None:
        pass

    configuration = Configuration()
    configuration.host = f"https://127.0.0.1:{listener.getsockname()[1]}"
    configuration.ssl_ca_cert = str(authority.server.ca)
    api = Api(configuration, "default", renew)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(be_the_cluster)
        async with anyio.create_task_group() as asking:
            asking.start_soon(api.call, "GET", "/version")
            await asked.wait()
            asking.cancel_scope.cancel()
    await api.aclose()

    with accepted[0] as connection:
        connection.settimeout(5)
        await anyio.to_thread.run_sync(read_to_the_end, connection)


def read_to_the_end(connection: socket.socket) -> None:
    """Fails with a timeout where the other side keeps it open."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass  # It was ended with something still to be read, which is an end as well.


def test_little_waits_to_be_read_from_a_connection() -> None:
    with connector._open((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))) as opened:
        # The kernel counts what it needs itself as much again.
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * connector._UNREAD
