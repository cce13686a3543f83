"""Agents are told again and again that their server lives, whatever happens to their containers at that moment."""

from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.containers import backend
from llm_sandbox_mcp.wiring import open_service
from tests.engines import small_profile

pytestmark = pytest.mark.anyio


async def test_a_container_that_starts_or_ends_while_agents_are_told_harms_nothing(
    engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_BEAT", 0.001)
    with anyio.fail_after(60):
        async with open_service(small_profile(engine, folder)) as service:
            for number in range(3):
                done = await service.execute(str(number))
                assert done.result == str(number)
                await service.close_session(done.session_id)
