"""Clients of both protocols over the real service, and a real server process."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from mcp import Client

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.wiring import open_service

from ..engines import host_folder
from .serving import Server, start, stop


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=["2026-07-28", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    """The protocol version that the client uses."""
    return str(request.param)


@pytest.fixture
async def client(era: str) -> AsyncIterator[Client]:
    """A client of a server in memory that is built as for stdio."""
    async with (
        open_service(load_profile()) as service,
        Client(build_server(service, host_files=True), mode=era) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A profile whose servers use a separate runtime folder, which must be empty at the end."""
    with host_folder() as runtime:
        path = tmp_path_factory.mktemp("http") / "profile.toml"
        path.write_text(f'[server]\nruntime = "{runtime}"\n')
        yield path
        assert not [*runtime.iterdir()]


@pytest.fixture(scope="module")
def server(profile: Path) -> Iterator[Server]:
    """One server for all tests that do not end it. Nothing that its clients do may make it print a traceback."""
    server = start(profile)
    yield server
    said = stop(server)
    assert "Traceback" not in said
    assert server.process.returncode == 0, said
