"""When a service warms sandboxes, and what it says of a language that cannot be warmed."""

from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import EngineUnavailable, StartFailed
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.runs.kernel import Kernel
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.testing.profiles import changed
from tests.memory.backend import HANDLERS, PROGRAMS, MemoryBackend, MemoryProcess, open_in_memory
from tests.pools import one_warm
from tests.unit.policies import POLICY

from .conftest import run
from .keeping import until

pytestmark = pytest.mark.anyio

WARM = {"pool": {"min": 1, "languages": ("script",)}}
BROKEN = """
name = "broken"
title = "Broken"
extension = ".b"
version_command = ["true"]
stateful = true
[runner]
argv = ["broken"]
"""


@pytest.mark.parametrize("changes", [WARM])
async def test_nothing_is_warmed_unless_a_server_asks_for_it(service: Service) -> None:
    await run(service, "print x", keep_session=False)
    await service.pool_until(lambda now: now.closing == 0)
    assert (service.pool().opened, service.pool().warm, service.pool().warming) == (1, 0, 0)


@pytest.mark.parametrize("changes", [WARM])
async def test_describing_a_language_leaves_the_warm_sandbox_in_the_pool(service: Service) -> None:
    await service.warm(["script"])
    await service.pool_until(one_warm)
    await service.describe_language("script")
    assert (service.pool().warm, service.pool().hits) == (1, 0)


async def broken(process: MemoryProcess) -> int:
    """A runner that never starts."""
    await process.print(b"no such interpreter\n", "stderr")
    return 3


async def test_a_language_that_cannot_be_warmed_is_reported_and_does_not_affect_others(
    profile: Profile, tmp_path: Path
) -> None:
    (tmp_path / "languages/broken").mkdir(parents=True)
    (tmp_path / "languages/broken/handler.toml").write_text(BROKEN)
    folders = (str(HANDLERS), str(tmp_path / "languages"))
    pool = {"min": 1, "languages": ("broken", "script")}
    profile = changed(profile, handlers={"folders": folders}, pool=pool)
    async with open_in_memory(profile, MemoryBackend({**PROGRAMS, "broken": broken})) as service:
        await service.warm(["broken", "script"])
        await service.pool_until(lambda now: now.failed > 0 and now.warm == 1)
        assert "no such interpreter" in service.pool().last_error
        assert (await run(service, "print x")).stdout.text == "x\n"
        assert (await execute(service, "1", language="broken")).status == "error"
        failed = service.pool().failed
        await anyio.sleep(50)
        assert failed < service.pool().failed < failed + 7


@pytest.mark.parametrize("changes", [WARM])
async def test_what_other_servers_leave_behind_is_removed_again_and_again_while_a_server_serves(
    service: Service, engine: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the engine did not answer once: another server may be gone for certain only later."""
    sweeps: list[float] = []

    async def sweep() -> int:
        sweeps.append(anyio.current_time())
        if len(sweeps) == 1:
            raise EngineUnavailable("the engine does not answer", "start it")
        return 0

    monkeypatch.setattr(engine, "sweep", sweep)
    began = anyio.current_time()
    await service.warm(["script"])
    await anyio.sleep(5)
    assert len(sweeps) == 1
    await service.warm(["script"])
    with anyio.move_on_after(145):
        await anyio.sleep_forever()
    assert [round(at - began) for at in sweeps] == [0, 60, 120]


async def test_a_runner_that_does_not_answer_its_check_in_time_gets_no_more_time() -> None:
    async def deaf(process: MemoryProcess) -> int:
        process.interrupted = lambda: None
        await anyio.sleep_forever()
        raise AssertionError

    async with MemoryBackend({"deaf": deaf}).sandbox(POLICY) as sandbox, await sandbox.spawn(["deaf"], {}) as process:
        kernel, begun = Kernel(process), anyio.current_time()
        with pytest.raises(StartFailed, match=r"the runner does not answer \(timeout\): it printed nothing"):
            await kernel.check(5)
        assert not kernel.alive
        assert anyio.current_time() - begun < 5.5, "seconds on a clock that jumps"


@pytest.mark.parametrize("keep", [True, False])
async def test_a_server_that_cannot_keep_sessions_says_that_once_when_it_starts(
    profile: Profile, engine: MemoryBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture, keep: bool
) -> None:
    (tmp_path / "file").touch()
    place = f"{tmp_path}/file/sessions"
    profile = changed(profile, sessions={"keep": keep, "store": place})
    async with open_in_memory(profile, engine) as service:
        await service.warm(["script"])
        await service.warm(["script"])
        await until(lambda: bool(caplog.messages) is keep, "it is said")
        assert (await run(service, "print x")).stdout.text == "x\n"
    step = "the operator can set another one, sessions.store in the profile"
    said = f"sessions.keep has no effect: the folder for saved sessions, {place}, cannot be used: File exists; {step}"
    assert caplog.messages[:1] == [said] * keep


async def test_a_server_that_can_keep_sessions_says_nothing_when_it_starts_and_leaves_nothing_there(
    profile: Profile, engine: MemoryBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checked = tmp_path / "sessions"
    profile = changed(profile, sessions={"keep": True, "store": str(checked)})
    async with open_in_memory(profile, engine) as service:
        await service.warm(["script"])
        await until(lambda: [*checked.glob("*")] != [], "it is checked")
    assert [path for path in checked.rglob("*") if path.is_file()] == []
    assert caplog.messages == []
