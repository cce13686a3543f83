"""The real process on stdin and stdout: however it ends, it ends soon and leaves nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from .processes import gone, watch_children
from .wire import CLIENT, message

pytestmark = pytest.mark.anyio

SERVE = [sys.executable, "-m", "llm_sandbox_mcp", "serve"]
SOON = 2.0


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
        """Returns once the code is running."""
        await self.send(message("initialize", CLIENT, 1))
        assert (await self.receive())["result"]["serverInfo"]["name"] == "llm-sandbox-mcp"
        await self.send(message("notifications/initialized"))
        code = "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nprint('on', flush=True)\nwhile True: pass"
        arguments = {"name": "execute_code", "arguments": {"code": code}, "_meta": {"progressToken": 1}}
        await self.send(message("tools/call", arguments, 2))
        heard = ""
        while "on\n" not in heard:
            heard += (await self.receive())["params"]["message"]


@asynccontextmanager
async def server() -> AsyncIterator[Talk]:
    async with await anyio.open_process(SERVE, stderr=subprocess.DEVNULL) as process:
        try:
            yield Talk(process)
        finally:
            if process.returncode is None:
                process.kill()


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(60):
        yield


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_server_in_the_middle_of_a_run(number: signal.Signals) -> None:
    async with server() as talk:
        await talk.start_endless_run()
        with watch_children(talk.process.pid) as watched, anyio.fail_after(SOON):
            talk.process.send_signal(number)
            assert await talk.process.wait() == 0
            await gone(watched)


async def test_the_end_of_the_input_ends_the_server_in_the_middle_of_a_run() -> None:
    async with server() as talk:
        await talk.start_endless_run()
        with watch_children(talk.process.pid) as watched, anyio.fail_after(SOON):
            await talk.hang_up()
            assert await talk.process.wait() == 0
            await gone(watched)


async def test_a_server_that_is_killed_leaves_no_process() -> None:
    async with server() as talk:
        await talk.start_endless_run()
        with watch_children(talk.process.pid) as watched, anyio.fail_after(SOON):
            talk.process.kill()
            await talk.process.wait()
            await gone(watched)


async def test_a_client_that_stopped_reading_does_not_keep_the_server_from_ending() -> None:
    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        for number in range(2, 400):
            await talk.send(message("tools/list", number=number))
        with anyio.fail_after(SOON):
            talk.process.terminate()
            assert await talk.process.wait() == 0


async def test_lines_that_are_not_json_rpc_change_nothing() -> None:
    async with server() as talk:
        await talk.send(b"\n{\n\xff\xfe\0\n[]\n" + message("initialize", CLIENT, 1))
        assert (await talk.receive())["id"] == 1
        await talk.hang_up()
        assert await talk.process.wait() == 0


async def test_a_message_larger_than_a_pipe_goes_both_ways() -> None:
    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        await talk.send(message("notifications/initialized"))
        name = "x" * 300_000
        await talk.send(message("resources/read", {"uri": f"sandbox://languages/{name}"}, 2))
        assert (await talk.receive())["error"]["code"] == -32602
        await talk.send(message("tools/call", {"name": "execute_code", "arguments": {"code": "1", name: 1}}, 3))
        assert (await talk.receive())["result"]["isError"]


@pytest.mark.parametrize("source", [os.devnull, "file"])
async def test_input_that_is_not_a_pipe_is_read_to_its_end(source: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(message("initialize", CLIENT, 1))
    async with await anyio.open_file(os.devnull if source == os.devnull else path, "rb") as given:
        done = await anyio.run_process(SERVE, stdin=given.wrapped, stderr=subprocess.DEVNULL)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ([] if source == os.devnull else [1])
