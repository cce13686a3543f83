"""Connections to a cluster that stops answering are closed when their owner closes."""

import socket
import ssl
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest
from kubernetes.aio.client import Configuration

from llm_sandbox_mcp.backends.kubernetes import api
from llm_sandbox_mcp.backends.kubernetes.api import Api
from tests.engines.certificates import ensure

pytestmark = pytest.mark.anyio

ANSWERS = {
    "nothing": b"",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "a whole answer": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        yield listener


@pytest.mark.parametrize("answer", ANSWERS)
async def test_no_connection_outlives_its_owner(listener: socket.socket, answer: str) -> None:
    authority = ensure("proxy")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server.cert, authority.server.key)
    answered = anyio.Event()
    accepted: list[socket.socket] = []

    async def be_the_cluster() -> None:
        """Answers one request, and after that nothing, not even the end of the connection."""
        plain, _ = await anyio.to_thread.run_sync(listener.accept)
        plain.settimeout(5)
        wrapped = await anyio.to_thread.run_sync(lambda: context.wrap_socket(plain, server_side=True))
        await anyio.to_thread.run_sync(wrapped.recv, 1 << 16)
        wrapped.sendall(ANSWERS[answer])
        accepted.append(socket.socket(fileno=wrapped.detach()))
        answered.set()

    async def renew() -> None:
        pass

    configuration = Configuration()
    configuration.host = f"https://127.0.0.1:{listener.getsockname()[1]}"
    configuration.ssl_ca_cert = str(authority.server.ca)
    api = Api(configuration, "default", renew)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(be_the_cluster)
        async with anyio.create_task_group() as calling:
            calling.start_soon(api.call, "GET", "/version")
            await answered.wait()
            calling.cancel_scope.cancel()
    await api.aclose()

    with accepted[0] as connection:
        connection.settimeout(5)
        await anyio.to_thread.run_sync(read_to_the_end, connection)


def read_to_the_end(connection: socket.socket) -> None:
    """Reads until the other side closes; fails with a timeout if it stays open."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass  # It was closed while data was still unread; it is closed all the same.


def test_the_receive_buffer_of_a_connection_is_small() -> None:
    with api._open((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))) as opened:
        # The kernel doubles the value, for its own needs.
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * api._UNREAD
