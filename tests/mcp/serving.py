"""A server process that listens on a port of this machine."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from mcp import Client
from mcp.client.sse import sse_client

from .processes import gone

SERVE = [sys.executable, "-m", "llm_sandbox_mcp", "serve", "--transport", "http"]


@dataclass
class Server:
    """A server process that listens."""

    process: subprocess.Popen[bytes]
    url: str

    def connect(self, way: str) -> Client:
        """A client of streamable HTTP in one of the protocols, or of SSE."""
        if way == "sse":
            return Client(sse_client(f"{self.url}/sse"), mode="legacy")
        return Client(f"{self.url}/mcp", mode=way)

    async def ended(self) -> None:
        """Waits for the process."""
        descriptor = os.pidfd_open(self.process.pid)
        try:
            await gone([descriptor])
        finally:
            os.close(descriptor)
        self.process.wait()


def start(profile: Path) -> Server:
    process = subprocess.Popen([*SERVE, "--port", "0", "--profile", str(profile)], stderr=subprocess.PIPE)
    assert process.stderr
    said = process.stderr.readline().decode()
    found = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)/mcp \(SSE: /sse\)\n", said)
    assert found, said
    return Server(process, found[1])


def stop(server: Server) -> str:
    """Ends the server, and returns what it wrote on stderr."""
    server.process.terminate()
    try:
        _, said = server.process.communicate(timeout=10)
    finally:
        server.process.kill()
    return said.decode()
