"""Work that is under way when a sandbox ends."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.containers.engine_container import EngineContainer
from llm_sandbox_mcp.backends.containers.sandbox import ContainerSandbox
from llm_sandbox_mcp.backends.containers.streams import Attached
from llm_sandbox_mcp.base.errors import SandboxLost
from llm_sandbox_mcp.profile.profile import Profile
from tests.engines import small_profile

pytestmark = pytest.mark.anyio


@pytest.fixture
def profile(engine: str, folder: Path) -> Profile:
    return small_profile(engine, folder)


async def test_a_process_that_starts_while_the_sandbox_ends_is_closed(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(sandbox, ContainerSandbox)
    container = sandbox._container
    assert isinstance(container, EngineContainer)
    started, ended = anyio.Event(), anyio.Event()
    streams: list[Attached] = []

    start = container.start

    async def start_slowly(argv: Sequence[str], *, closes_input: bool) -> Attached:
        streams.append(await start(argv, closes_input=closes_input))
        # As on a busy machine, where the engine's answer comes after the sandbox has ended.
        await streams[0].take_in()
        started.set()
        await ended.wait()
        return streams[0]

    async def spawn() -> None:
        with pytest.raises(SandboxLost):
            await sandbox.spawn(["sleep", "1000"], {"PATH": "/usr/bin:/bin"})

    monkeypatch.setattr(container, "start", start_slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawn)
        await started.wait()
        await sandbox.kill()
        ended.set()
    assert streams[0].ended.is_set()
    assert not sandbox.processes
