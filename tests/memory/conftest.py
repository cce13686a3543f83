"""A service on the backend in memory, on a clock that jumps."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.testing.profiles import small_profile
from tests.memory.backend import HANDLERS, MemoryBackend, open_in_memory
from tests.memory.clock import BACKEND


async def run(service: Service, code: str, **options: Any) -> Execution:
    """Runs a script."""
    return await execute(service, code, language="script", **options)


@pytest.fixture
def anyio_backend() -> tuple[str, Mapping[str, object]]:
    return BACKEND


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    """The tables of the profile that a test overrides."""
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
    async with open_in_memory(profile, engine) as opened:
        yield opened
