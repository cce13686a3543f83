"""How a run that reaches a limit is reported to a model."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client

from llm_sandbox_mcp.base.results import Status
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.wiring import open_service

from ..reached import LIMITS, PROFILE
from .results import call, text

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("control_groups")]


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Client]:
    profile = tmp_path / "small.toml"
    profile.write_text(PROFILE)
    async with (
        open_service(load_profile(str(profile))) as service,
        Client(build_server(service, host_files=False)) as client,
    ):
        yield client


@pytest.mark.parametrize("status", LIMITS)
async def test_a_limit_is_a_result_with_its_status_and_one_line_about_it(small: Client, status: Status) -> None:
    limit = LIMITS[status]
    result = await call(small, "execute_code", code=limit.code, timeout_seconds=limit.timeout)
    assert not result.is_error and result.structured_content is not None
    assert result.structured_content["status"] == status, result.structured_content
    assert result.structured_content["notes"][0] == limit.note
    first, _, *notes = text(result).splitlines()
    assert first == f"status: {status} (exit code {result.structured_content['exit_code']})"
    assert notes[0] == f"note: {limit.note}"
