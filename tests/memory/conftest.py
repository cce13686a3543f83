"""A service on the backend in memory, on a clock that jumps."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp.profile import Profile
from llm_sandbox_mcp.results import Execution
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.clock import BACKEND, JumpingLoop
from llm_sandbox_mcp.testing.memory import HANDLERS, MemoryBackend
from llm_sandbox_mcp.testing.profiles import small_profile
from llm_sandbox_mcp.wiring import open_service


async def run(service: Service, code: str, **options: Any) -> Execution:
    """Runs a script."""
    return await service.execute(code, language="script", **options)


@pytest.fixture
def anyio_backend() -> tuple[str, Mapping[str, object]]:
    return BACKEND


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    """Tables of the profile that a test overrides."""
    return {}


@pytest.fixture
def profile(tmp_path: Path, changes: dict[str, Mapping[str, object]]) -> Profile:
    tables = {"handlers": {"folders": (str(HANDLERS),)}, **changes}
    return small_profile("embedded", tmp_path, **tables)


@pytest.fixture
def engine() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
async def service(profile: Profile, engine: MemoryBackend) -> AsyncIterator[Service]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    await loop.wait_for_threads()
    async with open_service(profile, make=lambda *_: engine) as opened:
        yield opened
