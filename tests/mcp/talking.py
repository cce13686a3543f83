"""A conversation with a real server process over its stdin and stdout."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from .wire import CLIENT, message

SERVE = [sys.executable, "-m", "llm_sandbox_mcp", "serve"]


class Talk:
    """A conversation with a server process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin
        assert process.stdout
        self.process = process
        self._out = process.stdin
        self._in = BufferedByteReceiveStream(process.stdout)

    async def send(self, data: bytes) -> None:
        await self._out.send(data)

    async def receive(self) -> dict[str, Any]:
        received: dict[str, Any] = json.loads(await self._in.receive_until(b"\n", 1 << 24))
        return received

    async def hang_up(self) -> None:
        await self._out.aclose()

    async def start_endless_run(self) -> None:
        """Starts a run that never ends; returns once its code is running."""
        await self.send(message("initialize", CLIENT, 1))
        assert (await self.receive())["result"]["serverInfo"]["name"] == "llm-sandbox-mcp"
        await self.send(message("notifications/initialized"))
        code = "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nprint('on', flush=True)\nwhile True: pass"
        arguments = {"name": "execute_code", "arguments": {"code": code}, "_meta": {"progressToken": 1}}
        await self.send(message("tools/call", arguments, 2))
        printed = ""
        while "on\n" not in printed:
            received = await self.receive()
            assert "params" in received, received
            printed += received["params"]["message"]


@asynccontextmanager
async def server(*options: str, stderr: int = subprocess.DEVNULL) -> AsyncIterator[Talk]:
    """Starts a server; kills it at the end of the scope if it still runs."""
    async with await anyio.open_process([*SERVE, *options], stderr=stderr) as process:
        try:
            yield Talk(process)
        finally:
            if process.returncode is None:
                process.kill()
