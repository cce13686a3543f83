"""A server process that listens on a port of this machine."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from .processes import ended

SERVE = [sys.executable, "-m", "llm_sandbox_mcp", "serve", "--transport", "http"]


@dataclass
class Server:
    """A server process that listens."""

    process: subprocess.Popen[bytes]
    url: str

    def connect(self, way: str) -> Client:
        """A client over SSE, or over streamable HTTP with one of the protocol versions."""
        if way == "sse":
            return Client(sse_client(f"{self.url}/sse"), mode="legacy")
        return Client(f"{self.url}/mcp", mode=way)

    async def ended(self) -> None:
        """Waits until the process has ended."""
        await ended({self.process.pid})
        self.process.wait()


@asynccontextmanager
async def bearing(url: str, way: str, headers: Mapping[str, str]) -> AsyncIterator[Client]:
    """A client like that of `Server.connect` that sends additional headers with each request."""
    if way == "sse":
        async with Client(sse_client(f"{url}/sse", dict(headers)), mode="legacy") as client:
            yield client
    else:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=way) as client,
        ):
            yield client


def start(profile: Path, *options: str) -> Server:
    return launch([*SERVE, "--port", "0", "--profile", str(profile), *options])


def launch(command: Sequence[str], folder: Path | None = None, *, warning: str = "") -> Server:
    """Starts a server with a command, in the given working directory; if a `warning` is given, it says that first."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=folder)
    assert process.stderr
    if warning:
        assert warning in process.stderr.readline().decode()
    said = process.stderr.readline().decode()
    found = re.fullmatch(r"listening on (http://[\d.]+:\d+)/mcp \(SSE: /sse\)\n", said)
    assert found, said
    return Server(process, found[1])


def stop(server: Server) -> str:
    """Ends the server, and returns what it wrote to stderr."""
    server.process.terminate()
    try:
        _, said = server.process.communicate(timeout=60)
    finally:
        server.process.kill()
    return said.decode()
