"""The output of a process in a container before it runs; other code in the container can forge this output."""

from collections.abc import Iterator
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.backends.containers.process import ContainerProcess, search_path
from llm_sandbox_mcp.base.errors import StartFailed

pytestmark = pytest.mark.anyio


class Endless:
    """A stream that begins with some bytes and then goes on forever."""

    def __init__(self, first: bytes) -> None:
        self.first: Iterator[int] = iter(first)
        self.given = 0

    async def receive(self, most: int = 1 << 16) -> bytes:
        await anyio.lowlevel.checkpoint()
        if (byte := next(self.first, None)) is not None:
            return bytes([byte])
        self.given += most
        return bytes(most)

    def __aiter__(self) -> "Endless":
        return self

    async def __anext__(self) -> bytes:
        return await self.receive()


class Input:
    closed = False

    async def aclose(self) -> None:
        self.closed = True


class Streams:
    def __init__(self) -> None:
        self.stdin, self.stdout, self.stderr = Input(), Endless(b"!\n"), Endless(b"")
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Sandbox:
    def __init__(self) -> None:
        self.processes: set[ContainerProcess] = set()


async def test_an_endless_error_message_is_not_read_forever() -> None:
    sandbox, streams = Sandbox(), Streams()
    process = ContainerProcess(cast(Any, sandbox), cast(Any, streams))
    sandbox.processes.add(process)
    with anyio.fail_after(10), pytest.raises(StartFailed, match="cannot start sh in the sandbox: "):
        await process.started("sh")
    assert streams.stdout.given + streams.stderr.given <= 1 << 18
    assert streams.closed and streams.stdin.closed and not sandbox.processes


@pytest.mark.parametrize(
    ("image", "searched"),
    [
        ("", "/usr/local/bin:/usr/bin:/bin"),
        ("/opt/conda/bin:/bin", "/opt/conda/bin:/bin:/usr/local/bin:/usr/bin"),
        # Folders that code can write to are not searched.
        ("bin:.::/sandbox/bin:/home:/tmp/x", "/usr/local/bin:/usr/bin:/bin"),
    ],
)
def test_programs_are_searched_on_the_path_of_the_image(image: str, searched: str) -> None:
    assert search_path(image) == searched
