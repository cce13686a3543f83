"""Clients of both protocols, over the real service."""

from collections.abc import AsyncIterator

import pytest
from mcp import Client

from llm_sandbox_mcp.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import open_service


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["2026-07-28", "legacy"])
def era(request: pytest.FixtureRequest) -> str:
    """The protocol that the client speaks."""
    return str(request.param)


@pytest.fixture
async def client(era: str) -> AsyncIterator[Client]:
    """A client of a server as it is on stdio, in memory."""
    async with (
        open_service(load_profile()) as service,
        Client(build_server(service, host_files=True), mode=era) as client,
    ):
        yield client
