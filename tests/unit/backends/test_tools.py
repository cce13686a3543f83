"""When the code of a sandbox is paused: only once it hinders our own tools."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Completed, Process, Sandbox
from llm_sandbox_mcp.backends.copying import delete, in_time
from llm_sandbox_mcp.backends.patience import Patience
from llm_sandbox_mcp.base.errors import StartFailed
from tests.memory.clock import BACKEND

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, Mapping[str, object]]:
    return BACKEND


class Hindered:
    """A sandbox whose code hinders tools while it is not paused: it stops them, kills them, or ends their start."""

    ready = Sandbox.ready
    processes: tuple[Process, ...] = ()

    def __init__(self, how: str = "") -> None:
        self._how = how
        self._paused = anyio.Event()
        self.patience = Patience()
        self.log: list[str] = []

    @asynccontextmanager
    async def paused(self, code: object) -> AsyncIterator[None]:
        self.log.append("paused")
        self._paused.set()
        try:
            yield
        finally:
            self.log.append("continued")

    async def run(self, argv: object, env: object, *, stdin: object = None) -> Completed:
        self.log.append("run")
        hindered = not self._paused.is_set() or self._how == "memory"
        if self._how == "stops" and hindered:
            await self._paused.wait()
        if self._how == "refuses" and hindered:
            raise StartFailed("no")
        return Completed(137 if self._how in ("kills", "memory") and hindered else 0, b"", b"")

    async def look(self, command: str, seconds: float) -> bytes:
        self.log.append("look")
        if self._how and not self._paused.is_set():
            await anyio.sleep_forever()
        return b"seen"


async def test_code_that_lets_tools_work_is_not_paused() -> None:
    sandbox = Hindered()
    await delete(cast(Sandbox, sandbox), ["file"])
    async with in_time(cast(Sandbox, sandbox)) as tools:
        assert await tools.look("true") == b"seen"
    assert sandbox.log == ["run", "look"]


async def test_a_look_without_an_answer_is_repeated_while_code_is_paused() -> None:
    sandbox = Hindered("kills")
    async with in_time(cast(Sandbox, sandbox)) as tools:
        assert await tools.look("true") == b"seen"
    assert sandbox.log == ["look", "paused", "look", "continued"]


@pytest.mark.parametrize(("how", "runs"), [("stops", 1), ("kills", 2), ("refuses", 2)])
async def test_a_tool_that_code_hinders_does_its_work_while_code_is_paused(how: str, runs: int) -> None:
    sandbox = Hindered(how)
    start = anyio.current_time()
    await delete(cast(Sandbox, sandbox), ["file"])
    assert sandbox.log[:2] == ["run", "paused"]
    assert sandbox.log.count("run") == runs
    assert anyio.current_time() - start < 1.5
    assert sandbox.patience.hindered


async def test_after_that_code_is_paused_first_until_the_next_run() -> None:
    sandbox = Hindered("stops")
    for _ in range(2):
        await delete(cast(Sandbox, sandbox), ["file"])
    assert sandbox.log[3:5] == ["paused", "run"]
    with sandbox.patience.shared():
        assert not sandbox.patience.hindered


async def test_a_tool_that_is_killed_during_a_pause_too_is_not_started_a_third_time() -> None:
    sandbox = Hindered("memory")
    await delete(cast(Sandbox, sandbox), ["file"])
    assert sandbox.log == ["run", "paused", "run", "continued"]


@pytest.mark.parametrize(("seconds", "pause"), [(0.5, 0.25), (1.0, 0.5), (2.0, 1.0), (30.0, 1.0)])
async def test_half_of_the_time_is_left_when_code_is_paused_and_more_of_much_time(seconds: float, pause: float) -> None:
    sandbox = Hindered()
    async with in_time(cast(Sandbox, sandbox), seconds=seconds):
        await anyio.sleep(pause - 0.02)
        assert sandbox.log == []
        await anyio.sleep(0.04)
        assert sandbox.log == ["paused"]


async def test_moved_bytes_put_off_a_pause() -> None:
    sandbox = Hindered()
    async with in_time(cast(Sandbox, sandbox)) as tools:
        tools.moved(16 << 20)
        await anyio.sleep(4)
        assert sandbox.log == []
        await anyio.sleep(2)
        assert sandbox.log == ["paused"]
