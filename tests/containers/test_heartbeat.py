"""The server regularly sends each agent a heartbeat, whatever happens to the containers at that moment."""

from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.containers import backend
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import small_profile

pytestmark = pytest.mark.anyio

AWAIT_BEAT = """\
import os, time
beat = '/opt/handlers/.beat'
os.utime(beat, (0, 0))
while os.stat(beat).st_mtime == 0:
    time.sleep(0.01)
'renewed'
"""


async def test_a_container_that_starts_or_ends_during_a_heartbeat_harms_nothing(
    engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_BEAT", 0.001)
    with anyio.fail_after(60):
        async with open_service(small_profile(engine, folder)) as service:
            for number in range(3):
                done = await execute(service, str(number))
                assert done.result == str(number)
                await service.sessions.close(done.session_id)


async def test_the_heartbeat_file_of_a_container_is_renewed(
    engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_BEAT", 0.05)
    with anyio.fail_after(60):
        async with open_service(small_profile(engine, folder)) as service:
            for _ in range(3):
                assert (await execute(service, AWAIT_BEAT, timeout=10)).result == "'renewed'"
