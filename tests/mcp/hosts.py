"""A host of a real server process: the client of the mcp package on its pipes, and a test that decides how it ends."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from .talking import SERVE

_LONGEST = 1 << 24


@dataclass
class Host:
    """A client and its server, a process on its pipes."""

    client: Client
    process: Process
    log: Path
    """What the server writes to stderr."""

    async def end(self, way: str) -> int:
        """Ends the server by the end of its input, or by the signal of that name; returns its exit code."""
        if way == "input":
            assert self.process.stdin
            await self.process.stdin.aclose()
        else:
            self.process.send_signal(signal.Signals[way])
        return await self.process.wait()


@asynccontextmanager
async def host(profile: Path, era: str) -> AsyncIterator[Host]:
    """Starts a server, and connects to it; ends it at the end of the scope if it still runs.

    No server may print a traceback. One that was not killed must end by itself, with code 0.
    """
    log = profile.parent / f"log-{os.urandom(4).hex()}"
    with log.open("wb") as file:
        process = await anyio.open_process([*SERVE, "--profile", str(profile)], stderr=file)
    async with process:
        try:
            async with Client(_pipes(process), mode=era) as client:
                yield (found := Host(client, process, log))
                assert process.returncode is not None or await found.end("input") == 0
        except BaseException as error:
            error.add_note(f"the server said: {log.read_text()}")
            raise
        finally:
            if process.returncode is None:
                process.kill()
    assert "Traceback" not in log.read_text(), log.read_text()


@asynccontextmanager
async def _pipes(
    process: Process,
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """The messages from and to a process; those from it end when it does."""
    in_send, in_receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    out_send, out_receive = anyio.create_memory_object_stream[SessionMessage](0)
    assert process.stdin and process.stdout
    sink, lines = process.stdin, BufferedByteReceiveStream(process.stdout)

    async def read() -> None:
        async with in_send:
            while True:
                try:
                    line = await lines.receive_until(b"\n", _LONGEST)
                except (anyio.EndOfStream, anyio.IncompleteRead):
                    return
                await in_send.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def write() -> None:
        with out_receive:  # whoever sends after the end must not wait
            async for message in out_receive:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await sink.send(text.encode() + b"\n")
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    async with in_send, in_receive, out_send, out_receive, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        yield in_receive, out_send
        tasks.cancel_scope.cancel()
