"""An engine starts again, or the connection to it breaks: sessions go on from their last save, or are said to be lost."""

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.base.errors import EngineUnavailable
from llm_sandbox_mcp.profile.profile import Profile
from tests.conformance.kept import BUSY, KEPT, Subject, goes_on, noticed, sandbox_of
from tests.deadlines import within
from tests.engines import small_profile
from tests.engines.spare import IMAGE, SecureDocker, Spare

from .engines import address
from .proxy import proxy

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.only_in_all,
    # The engines' packages leave a socket that could not connect to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SOON = 60.0


def profile_of(engine: str, folder: Path, host: str, sessions: Mapping[str, object]) -> Profile:
    settings: dict[str, Mapping[str, object]] = {engine: {"host": host}, "containers": {"image": IMAGE}}
    return small_profile(engine, folder, sessions={"save_timeout": 30.0, **sessions}, **settings)


@asynccontextmanager
async def worked(profile: Profile, engine: str, *, busy: bool) -> AsyncIterator[Subject]:
    """A session that has worked, and whose code runs if it is busy."""
    subject = Subject(profile, engine)
    async with subject.served():
        await subject.start()
        await subject.work()
        await subject.work()
        if busy:
            await subject.begin(BUSY)
        yield subject


@pytest.fixture
def spare(request: pytest.FixtureRequest, engine: str) -> Spare:
    made: Spare = request.getfixturevalue(f"spare_{engine}")
    return made


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_session_goes_on_after_its_engine_was_started_again(
    engine: str, spare: Spare, folder: Path, number: signal.Signals, busy: bool, kept: str
) -> None:
    async with worked(profile_of(engine, folder, spare.address, KEPT[kept]), engine, busy=busy) as subject:
        await anyio.to_thread.run_sync(spare.end, number)
        with within(SOON), pytest.raises(EngineUnavailable, match=f"{engine} does not answer"):
            await subject.found()
        await anyio.to_thread.run_sync(spare.start)
        await goes_on(subject)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_session_goes_on_after_a_docker_was_started_again_that_keeps_its_containers(
    spare_docker: SecureDocker, folder: Path, busy: bool, kept: str
) -> None:
    spare_docker.end()
    spare_docker.settings["live-restore"] = True
    try:
        await anyio.to_thread.run_sync(spare_docker.start)
        async with worked(
            profile_of("docker", folder, spare_docker.address, KEPT[kept]), "docker", busy=busy
        ) as subject:
            await anyio.to_thread.run_sync(spare_docker.end)
            await anyio.to_thread.run_sync(spare_docker.start)
            await goes_on(subject)
    finally:
        spare_docker.settings.clear()
        spare_docker.end()


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_session_goes_on_after_the_connection_to_its_engine_was_cut(
    engine: str, folder: Path, busy: bool, kept: str
) -> None:
    place = folder / "engine.sock"
    async with proxy(address(engine), place) as way:
        profile = profile_of(engine, folder, f"unix://{place}", KEPT[kept])
        async with worked(profile, engine, busy=busy) as subject:
            sandbox = await sandbox_of(subject.service, subject.id)
            way.kill()
            await way.wait()
            await noticed(sandbox)
            with within(SOON), pytest.raises(EngineUnavailable, match=f"{engine} does not answer"):
                await subject.found()
            async with proxy(address(engine), place):
                await goes_on(subject)
                await subject.end()
