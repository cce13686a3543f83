"""Folders in a sandbox that are copies: what is not known of them is an error, and soon."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Process, Sandbox
from llm_sandbox_mcp.backends.containers import templates
from llm_sandbox_mcp.backends.containers.sandbox import ContainerSandbox
from llm_sandbox_mcp.backends.copying import in_time
from llm_sandbox_mcp.backends.folder_copies import held_files, list_tree
from llm_sandbox_mcp.backends.patience import Patience
from llm_sandbox_mcp.base.errors import Unavailable
from tests.memory.clock import BACKEND
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, Mapping[str, object]]:
    return BACKEND


class Answering:
    """A sandbox whose tools print this; without it, they never end."""

    ready, paused, silence = Sandbox.ready, Sandbox.paused, Sandbox.silence
    processes: tuple[Process, ...] = ()

    def __init__(self, output: bytes | None) -> None:
        self._output = output
        self.patience = Patience()

    async def look(self, command: str, seconds: float) -> bytes:
        if self._output is None:
            await anyio.sleep_forever()
        return self._output or b""


class Stopped(Answering):
    """A sandbox whose code stops our tools; it notes whether the code was paused."""

    outside = None

    def __init__(self) -> None:
        super().__init__(None)
        self.policy = POLICY
        self.pauses = 0
        self._agent = self

    @asynccontextmanager
    async def paused(self, code: Collection[Process]) -> AsyncIterator[None]:
        self.pauses += 1
        yield

    async def spawn(self, *_: object, **__: object) -> Process:
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize("tool", ["pack", "list"])
async def test_tools_that_the_code_stops_have_ten_seconds_and_it_is_paused(tool: str, tmp_path: Path) -> None:
    sandbox = Stopped()
    start = anyio.current_time()
    tools: dict[str, Callable[[], Awaitable[object]]] = {
        "pack": lambda: templates.pack(cast(Sandbox, sandbox), tmp_path / "archive.tar"),
        "list": lambda: ContainerSandbox.list_files(cast(ContainerSandbox, sandbox)),
    }
    with pytest.raises(Unavailable, match="was not done in time"):
        await tools[tool]()
    assert sandbox.pauses == 1
    assert anyio.current_time() - start < 11


async def test_a_list_shares_the_time_of_other_tools() -> None:
    sandbox = Stopped()
    start = anyio.current_time()
    with sandbox.patience.shared():
        await anyio.sleep(8)
        with pytest.raises(Unavailable, match="was not done in time"):
            await ContainerSandbox.list_files(cast(ContainerSandbox, sandbox))
    assert anyio.current_time() - start < 11


@pytest.mark.parametrize("output", [b"", b"/data/out/a\0/data/ou", b"/data/out/a\0end", b"end\0/data/out/a\0"])
async def test_open_files_that_are_not_all_known_are_an_error(output: bytes) -> None:
    with pytest.raises(Unavailable, match="which files of /data/out code has open is not known"):
        await held_files(cast(Sandbox, Answering(output)), "/data/out")


async def test_open_files_are_named_without_their_folder() -> None:
    sandbox = cast(Sandbox, Answering(b"/data/out/a\0/data/out/b/c\0end\0"))
    assert await held_files(sandbox, "/data/out") == {"a", "b/c"}


async def test_a_list_that_is_not_whole_is_an_error() -> None:
    with pytest.raises(Unavailable, match="what is in /data/out cannot be listed"):
        await list_tree(cast(Sandbox, Answering(b"1.000000000\0\0")), "/data/out")


async def test_tools_that_never_end_have_ten_seconds_together() -> None:
    sandbox = cast(Sandbox, Answering(None))
    start = anyio.current_time()
    with sandbox.patience.shared():
        for find_out in (list_tree, held_files, list_tree):
            with pytest.raises(Unavailable, match="was not done in time"):
                await find_out(sandbox, "/data/out")
    assert 10 <= anyio.current_time() - start < 11
    with pytest.raises(Unavailable, match="was not done in time"):
        await list_tree(sandbox, "/data/out")
    assert 40 <= anyio.current_time() - start < 41


@pytest.mark.parametrize(("sizes", "seconds"), [((1 << 20,) * 8, 12), ((1,) * 5, 10), ((1 << 30,), 25)])
async def test_they_have_longer_if_they_move_bytes_but_not_for_ever(sizes: tuple[int, ...], seconds: int) -> None:
    sandbox = cast(Sandbox, Answering(None))
    start = anyio.current_time()
    with sandbox.patience.shared(25), pytest.raises(Unavailable, match="was not done in time"):  # noqa: PT012
        async with in_time(sandbox) as tools:
            for size in sizes:
                tools.moved(size)
            await anyio.sleep_forever()
    assert seconds <= anyio.current_time() - start < seconds + 1
