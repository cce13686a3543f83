"""The fixtures of the tests: one sandbox, or a whole service, on the backend that `backend_name` names."""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import anyio
import pytest

from ..backends.base import Backend, Sandbox
from ..profile.profile import Profile
from ..service import Service
from ..wiring import open_backend, open_service
from .profiles import host_folder, small_profile, surroundings

__all__ = [
    "anyio_backend",
    "backend",
    "backend_name",
    "changes",
    "control_groups",
    "folder",
    "profile",
    "sandbox",
    "service",
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def backend_name() -> str:
    """The backend's name in a profile; override it."""
    raise NotImplementedError("no backend is named; define a fixture `backend_name` that returns its name")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the host for everything that a server keeps."""
    with host_folder() as made:
        yield made


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    """Tables of the profile that a test overrides."""
    return {}


@pytest.fixture
def profile(backend_name: str, folder: Path, changes: dict[str, Mapping[str, object]]) -> Profile:
    """The profile of the tests; override it if the backend needs its own settings."""
    return small_profile(backend_name, folder, **changes)


@pytest.fixture
async def backend(anyio_backend: str, profile: Profile, folder: Path) -> AsyncIterator[Backend]:
    with anyio.fail_after(60):
        async with open_backend(profile, surroundings(folder)) as opened:
            yield opened


@pytest.fixture
async def sandbox(backend: Backend, profile: Profile) -> AsyncIterator[Sandbox]:
    async with backend.sandbox(profile.limits.policy()) as opened:
        yield opened


@pytest.fixture
async def service(anyio_backend: str, profile: Profile) -> AsyncIterator[Service]:
    with anyio.fail_after(60):
        async with open_service(profile) as opened:
            yield opened


@pytest.fixture
def control_groups() -> None:
    """Override it to skip tests on machines where limits do not apply to all processes of a sandbox together."""
