"""How many processes a run starts in addition to the code's own, on remote engines, where starting a process takes
long."""

from collections.abc import Mapping, Sequence

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Process
from llm_sandbox_mcp.backends.containers.sandbox import ContainerSandbox
from llm_sandbox_mcp.backends.layout import WORKDIR
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, open_session
from tests.engines import MIB

pytestmark = pytest.mark.anyio

PROGRAM = '#include <fstream>\nint main() { std::ofstream("made.txt", std::ios::app) << "x"; return %d; }'
FILLS = "with open('large', 'wb') as file:\n    while True: file.write(bytes(1 << 20))"


@pytest.fixture(params=["docker", "podman", "kubernetes"])
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    return {"limits": {"memory": 512 * MIB, "disk": 16 * MIB}}


@pytest.fixture
def starts(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were started."""
    started: list[str] = []
    spawn = ContainerSandbox.spawn

    async def noted(
        sandbox: ContainerSandbox, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, **options: bool
    ) -> Process:
        started.append(argv[0])
        return await spawn(sandbox, argv, env, cwd, **options)

    monkeypatch.setattr(ContainerSandbox, "spawn", noted)
    return started


async def test_a_run_that_fails_starts_nothing(service: Service, starts: list[str]) -> None:
    session = (await execute(service, "x = 1")).session_id
    starts.clear()
    for _ in range(3):
        failed = await execute(service, "1 / 0", session_id=session)
        assert failed.status == "error", failed
    assert starts == []


async def test_a_full_disk_is_still_reported(service: Service, starts: list[str]) -> None:
    session = (await execute(service, "x = 1")).session_id
    starts.clear()
    full = await execute(service, FILLS, session_id=session)
    assert full.status == "disk_limit", full
    assert [program for program in starts if program != "tar"] == []


async def test_a_built_program_starts_only_itself_and_its_files_are_found(service: Service, starts: list[str]) -> None:
    with anyio.fail_after(60):
        session = open_session(service, "cpp")
        for code in (0, 3):
            first = await execute(service, PROGRAM % code, language="cpp", session_id=session)
            assert [artifact.name for artifact in first.artifacts] == ["made.txt"], first
            starts.clear()
            for _ in range(2):
                again = await execute(service, PROGRAM % code, language="cpp", session_id=session)
                assert (again.exit_code, [artifact.name for artifact in again.artifacts]) == (code, ["made.txt"]), again
            # `tar` copies out the files that the program changed.
            assert sorted(starts) == sorted(["tar", starts[0]] * 2), starts
