"""One sandbox on each backend, on the real engine."""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends import BACKENDS, open_backend
from llm_sandbox_mcp.backends.base import Backend, Sandbox
from llm_sandbox_mcp.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, need, need_open_network, small_profile, surroundings


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def folder() -> Iterator[Path]:
    with host_folder() as made:
        yield made


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    """Sections of the profile that a test overrides."""
    return {}


@pytest.fixture
def profile(backend_name: str, folder: Path, changes: dict[str, Mapping[str, object]]) -> Profile:
    return small_profile(backend_name, folder, **changes)


async def _need(profile: Profile) -> None:
    await need(profile.backend.name)
    if profile.backend.name == "embedded" and profile.network.mode == "open":
        need_open_network()


@pytest.fixture
async def backend(anyio_backend: str, profile: Profile, folder: Path) -> AsyncIterator[Backend]:
    await _need(profile)
    with anyio.fail_after(60):
        async with open_backend(profile, surroundings(folder)) as opened:
            yield opened


@pytest.fixture
async def sandbox(backend: Backend, profile: Profile) -> AsyncIterator[Sandbox]:
    async with backend.sandbox(profile.limits.policy()) as opened:
        yield opened


@pytest.fixture
async def service(anyio_backend: str, profile: Profile) -> AsyncIterator[Service]:
    await _need(profile)
    with anyio.fail_after(60):
        async with open_service(profile) as opened:
            yield opened


DEVIATIONS = {
    ("kubernetes", "test_what_does_not_fit_is_an_error_that_says_why"): "before 1.22 no volume in memory has a size",
    ("kubernetes", "test_a_disk_that_is_full_is_told_all_the_same"): "before 1.22 no volume in memory has a size",
    ("kubernetes", "test_each_limit_that_is_hit_is_counted"): "a node limits processes and tells nobody",
}
"""What a backend cannot do; one that starts to do it fails."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        call = getattr(item, "callspec", None)
        name = getattr(item, "originalname", "")
        if call and (reason := DEVIATIONS.get((call.params.get("backend_name", ""), name))):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
