"""An engine that accepts a request and does not answer: the error says so, and what the engine does too late is
undone."""

import signal
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.errors import EngineUnavailable
from llm_sandbox_mcp.wiring import open_service
from tests.engines import small_profile

from .engines import Watched, address, until
from .proxy import proxy

pytestmark = pytest.mark.anyio

PATIENCE = 6
"""Seconds that the server waits for an answer here; making a container takes a tenth of a second."""
GONE = 60.0


async def test_a_container_that_is_made_too_late_is_removed(
    engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"llm_sandbox_mcp.backends.{engine}.engine.SECONDS", PATIENCE)
    watched = Watched(address(engine), folder / "runtime")
    place = folder / "engine.sock"
    profile = small_profile(engine, folder, **{engine: {"host": f"unix://{place}"}})
    with anyio.fail_after(120):
        async with proxy(address(engine), place) as way, open_service(profile) as service:
            session = (await service.execute("x = 41")).session_id
            way.send_signal(signal.SIGSTOP)
            with pytest.raises(EngineUnavailable, match=f"{engine} does not answer"):
                await service.execute("1")
            assert (len(watched.now()), len(service.sessions.list())) == (1, 1)
            way.send_signal(signal.SIGCONT)
            await until(lambda: len(watched.now()) == 2, GONE)
            await until(lambda: len(watched.now()) == 1, GONE)
            assert (await service.execute("x + 1", session_id=session)).result == "42"
    assert not watched.now()


async def test_an_engine_that_does_not_report_its_settings_runs_code_for_a_named_user(
    engine: str, folder: Path
) -> None:
    place = folder / "engine.sock"
    profile = small_profile(engine, folder, containers={"user": "1000:1000"}, **{engine: {"host": f"unix://{place}"}})
    with anyio.fail_after(120):
        async with proxy(address(engine), place, holds="/info "), open_service(profile) as service:
            assert (await service.execute("6 * 7")).result == "42"
