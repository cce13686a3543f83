"""The raw stream of a container's process, over a socket pair."""

import socket

import anyio
import pytest

from llm_sandbox_mcp.backends.containers.streams import Connection

pytestmark = pytest.mark.anyio


async def test_reading_an_endless_stream_lets_other_tasks_run() -> None:
    here, there = socket.socketpair()
    turns = 0

    async def other() -> None:
        nonlocal turns
        turns += 1

    with there:
        connection = Connection(here)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)
                for _ in range(10):
                    there.send(b"x")
                    assert await connection.receive(bytearray(8)) == 1
                assert turns == 1
        finally:
            connection.close()
