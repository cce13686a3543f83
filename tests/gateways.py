"""The gateway to a package index on loopback, for tests of what it serves."""

import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from llm_sandbox_mcp.backends.listening import listen_on
from llm_sandbox_mcp.libraries.installed.downloads import Downloads
from llm_sandbox_mcp.libraries.installed.gateway import Gateways, index_url, serve_index
from llm_sandbox_mcp.libraries.installed.index_client import open_client
from tests.local_index import LocalIndex, local_index

UNTRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts no certificate: the indexes on loopback have none, and it takes 40 ms to read those of the machine."""


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as serving:
        yield serving


@pytest.fixture
def files(index: LocalIndex) -> LocalIndex:
    """A server of files under another name of the same address and port, as mirrors have it."""
    return index.under("localhost")


@pytest.fixture
def stranger() -> Iterator[LocalIndex]:
    """Another service of the same machine."""
    with local_index() as serving:
        yield serving


@dataclass
class Gateway:
    url: str
    problems: list[str]

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    async def send(self, raw: bytes) -> bytes:
        """Sends raw bytes; the whole answer, up to the end of the connection."""
        received = b""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            try:
                await stream.send(raw)
                while True:
                    received += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return received

    async def ask(self, target: str, method: str = "GET", **headers: str) -> httpx2.Response:
        """The answer to one request whose target is sent unchanged."""
        async with httpx2.AsyncClient(trust_env=False, verify=UNTRUSTING) as client:
            url = httpx2.URL(self.url).copy_with(raw_path=target.encode())
            return await client.request(
                method, url, headers={name.replace("_", "-"): headers[name] for name in headers}
            )


@asynccontextmanager
async def gateway(upstream: str, downloads: Downloads | None = None, kept: str = "(?!)") -> AsyncIterator[Gateway]:
    listening = socket.create_server(("127.0.0.1", 0))
    with anyio.fail_after(60):
        async with (
            listen_on(listening) as listener,
            open_client(upstream, UNTRUSTING) as client,
            anyio.create_task_group() as tasks,
        ):
            serving = Gateway(index_url(listener), [])
            serve = partial(
                serve_index,
                listener,
                upstream,
                client=client,
                gateways=Gateways(),
                downloads=downloads,
                files=re.compile(kept),
                on_problem=serving.problems.append,
            )
            tasks.start_soon(serve)
            yield serving
            tasks.cancel_scope.cancel()
