"""An engine that accepts a request and does not answer: the error says so, and what the engine does too late is
undone."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from llm_sandbox_mcp.base.errors import EngineSilent, EngineUnavailable
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, open_session
from llm_sandbox_mcp.wiring import open_service
from tests.deadlines import within
from tests.engines import small_profile

from .engines import Watched, address, until
from .proxy import proxy

pytestmark = pytest.mark.anyio

PATIENCE = 6
"""Seconds that the server waits for an answer here; making a container takes a tenth of a second."""
GONE = 60.0
SOON = 60.0
"""Seconds for an answer after a timeout of a second; a few are promised, and a busy machine takes longer."""
FOREVER = '#include <iostream>\n#include <unistd.h>\nint main() { std::cout << "on" << std::endl; pause(); }'


@asynccontextmanager
async def frozen_at_will(engine: str, folder: Path) -> AsyncIterator[tuple[Process, Service]]:
    """The only way to an engine, a process that a test can stop, and a service that uses it."""
    place = folder / "engine.sock"
    profile = small_profile(engine, folder, limits={"grace": 1}, **{engine: {"host": f"unix://{place}"}})
    async with proxy(address(engine), place) as way, open_service(profile) as service:
        yield way, service


async def freezes_during(
    service: Service, way: Process, session: str, code: str, language: str, *, timeout: float = 2
) -> None:
    """Runs code, whose engine stops when it prints; checks that the error names the engine."""

    async def seen(stream: str, text: str) -> None:
        way.send_signal(signal.SIGSTOP)

    with within(SOON), pytest.raises(EngineSilent, match=r"does not answer at .*, and what the code did is unknown"):
        await execute(service, code, language=language, session_id=session, timeout=timeout, on_output=seen)


async def test_an_engine_that_is_silent_at_the_end_of_a_run_is_named_and_the_session_keeps_its_state(
    engine: str, folder: Path
) -> None:
    async with frozen_at_will(engine, folder) as (way, service):
        session = (await execute(service, "x=41", language="bash")).session_id
        await freezes_during(service, way, session, "echo on; y=1; sleep 0.5; echo $y", "bash")
        with within(SOON), pytest.raises(EngineUnavailable, match=f"{engine} does not answer at"):
            await execute(service, "echo $x", language="bash", session_id=session)
        way.send_signal(signal.SIGCONT)
        with within(SOON):
            again = await execute(service, "echo $x $y", language="bash", session_id=session)
        assert (again.stdout.text, again.notes) == ("41 1\n", ())
        # That does not wait for the engine.
        await freezes_during(service, way, session, "echo on; sleep 1000", "bash")
        with within(SOON):
            await service.sessions.close(session)
        way.send_signal(signal.SIGCONT)


@pytest.mark.only_in_all
async def test_a_built_program_that_an_engine_leaves_unheard_is_killed_and_files_are_kept(
    engine: str, folder: Path
) -> None:
    async with frozen_at_will(engine, folder) as (way, service):
        session = open_session(service, "cpp")
        await service.files.copy_in(session, "x", b"41\n")
        await freezes_during(service, way, session, FOREVER, "cpp", timeout=30)
        way.send_signal(signal.SIGCONT)
        with within(SOON):
            again = await execute(service, "cat x; grep -l main /proc/*/comm", language="bash", session_id=session)
        assert (again.stdout.text, again.notes) == ("41\n", ())


STARTS: dict[str, Callable[[Service, str], Awaitable[object]]] = {
    "a new session": lambda service, _: execute(service, "1", language="bash"),
    "another interpreter": lambda service, session: execute(service, "1", session_id=session),
    "reading a file": lambda service, session: service.files.read(session, "x"),
    "writing a file": lambda service, session: service.files.copy_in(session, "y", b"2"),
}


@pytest.mark.only_in_all
@pytest.mark.parametrize("start", STARTS)
async def test_what_starts_on_a_silent_engine_names_it(engine: str, folder: Path, start: str) -> None:
    async with frozen_at_will(engine, folder) as (way, service):
        session = (await execute(service, "echo 41 > x", language="bash")).session_id
        way.send_signal(signal.SIGSTOP)
        with within(2 * SOON), pytest.raises(EngineUnavailable, match=f"{engine} does not answer at"):
            await STARTS[start](service, session)
        way.send_signal(signal.SIGCONT)
        with within(SOON):
            assert (await execute(service, "cat x", language="bash", session_id=session)).stdout.text == "41\n"


@pytest.mark.only_in_all
async def test_a_container_that_is_made_too_late_is_removed(
    engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"llm_sandbox_mcp.backends.{engine}.engine.SECONDS", PATIENCE)
    watched = Watched(address(engine), folder / "runtime")
    place = folder / "engine.sock"
    profile = small_profile(engine, folder, **{engine: {"host": f"unix://{place}"}})
    with anyio.fail_after(120):
        async with proxy(address(engine), place) as way, open_service(profile) as service:
            session = (await execute(service, "x = 41")).session_id
            way.send_signal(signal.SIGSTOP)
            with pytest.raises(EngineUnavailable, match=f"{engine} does not answer"):
                await execute(service, "1")
            assert (len(watched.now()), len(service.sessions.list())) == (1, 1)
            way.send_signal(signal.SIGCONT)
            await until(lambda: len(watched.now()) == 2, GONE)
            await until(lambda: len(watched.now()) == 1, GONE)
            assert (await execute(service, "x + 1", session_id=session)).result == "42"
    assert not watched.now()


@pytest.mark.only_in_all
async def test_an_engine_that_does_not_report_its_settings_runs_code_for_a_named_user(
    engine: str, folder: Path
) -> None:
    place = folder / "engine.sock"
    profile = small_profile(engine, folder, containers={"user": "1000:1000"}, **{engine: {"host": f"unix://{place}"}})
    with anyio.fail_after(120):
        async with proxy(address(engine), place, holds="/info "), open_service(profile) as service:
            assert (await execute(service, "6 * 7")).result == "42"
