"""A real engine ends in the middle of a run: the error says so, no code keeps running, and everything works again once
the engine is back."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.base.errors import EngineUnavailable, SandboxLost
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.deadlines import within
from tests.engines import small_profile
from tests.engines.spare import IMAGE, SecureDocker, Spare

from .engines import Watched, until

pytestmark = pytest.mark.anyio

SOON = 10.0
GONE = 60.0
"""Seconds for two attempts to remove a container, each as long as an engine that has just come back may take."""
ROUNDS = 3
POOLED = 3
"""Connections that the engine's package keeps for the next call, give or take one, and one of the search for containers
that the engine made too late."""


@dataclass(frozen=True)
class End:
    """One way for an engine to end."""

    engine: str
    number: signal.Signals
    keeps: bool = False
    """Whether its containers are still there when it is back."""


ENDS = {
    "docker is stopped": End("docker", signal.SIGTERM),
    "docker is killed": End("docker", signal.SIGKILL),
    "docker is killed and keeps its containers": End("docker", signal.SIGKILL, keeps=True),
    "podman is stopped": End("podman", signal.SIGTERM),
    "podman is killed": End("podman", signal.SIGKILL),
}


@pytest.fixture(params=ENDS)
def end(request: pytest.FixtureRequest) -> End:
    return ENDS[request.param]


@pytest.fixture
def spare(request: pytest.FixtureRequest, end: End) -> Iterator[Spare]:
    engine: Spare = request.getfixturevalue(f"spare_{end.engine}")
    if isinstance(engine, SecureDocker) and end.keeps:
        engine.end()
        engine.settings["live-restore"] = True
        engine.start()
        yield engine
        engine.settings.clear()
        engine.end()
    else:
        yield engine


def processes(container: str) -> list[str]:
    """All processes of a container, as this machine sees them."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if container in (place / "cgroup").read_text():
                found.append((place / "cmdline").read_text() or place.name)
    return found


async def lose(service: Service, session: str, end: Callable[[], object]) -> None:
    """Ends the engine in the middle of a run."""
    running = anyio.Event()

    async def seen(stream: str, text: str) -> None:
        running.set()

    async def run() -> None:
        code = "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nprint('on', flush=True)\nwhile True: pass"
        with within(SOON), pytest.raises(SandboxLost):
            await execute(service, code, session_id=session, on_output=seen)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await running.wait()
        await anyio.to_thread.run_sync(end)


# The engines' packages leave a socket that could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_end_of_an_engine_is_reported_and_all_works_again_once_it_is_back(
    spare: Spare, end: End, folder: Path
) -> None:
    settings = {end.engine: {"host": spare.address}, "containers": {"image": IMAGE}}
    profile = small_profile(end.engine, folder, **settings)
    watched = Watched(spare.address, folder / "runtime")
    counts = []
    async with open_service(profile) as service:
        for _ in range(ROUNDS):
            session = (await execute(service, "kept = 1")).session_id
            (container,) = watched.now()
            assert len(processes(container)) >= 3
            await lose(service, session, partial(spare.end, end.number))
            with within(SOON), pytest.raises(EngineUnavailable, match=f"{end.engine} does not answer"):
                await execute(service, "print(1)", session_id=session)
            # A Docker daemon that is killed leaves its containers as they were until it is back.
            if end.engine == "podman" or end.number == signal.SIGTERM:
                await until(lambda: not processes(container), GONE)  # noqa: B023
            await anyio.to_thread.run_sync(spare.start)
            with within(SOON):
                again = await execute(service, "print(6 * 7)", session_id=session)
            assert again.stdout.text == "42\n"
            assert any("started fresh" in note for note in again.notes), again
            await until(lambda: not processes(container), GONE)  # noqa: B023
            for open_session in service.sessions.list():
                await service.sessions.close(open_session.id)
            await until(lambda: not watched.now(), GONE)
            gc.collect()  # an error keeps the socket that could not connect
            counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[1] + POOLED, counts
