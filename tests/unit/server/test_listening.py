"""Addresses at which a server does not listen: without a token only this machine is served."""

import socket

import anyio
import pytest

from llm_sandbox_mcp.base.errors import BadAddress
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.server.transports import serve_http
from tests.mcp.fake import FakeService

pytestmark = pytest.mark.anyio


async def refusal(host: str, port: int) -> str:
    service = FakeService().service()
    with anyio.fail_after(10), pytest.raises(BadAddress) as refused:
        await serve_http(build_server(service, host_files=False), service, host, port)
    return str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "[::]"])
async def test_without_a_token_no_other_machine_is_served(host: str) -> None:
    assert (await refusal(host, 0)).startswith(f"host {host}: must be a loopback address (127.0.0.1, ::1, localhost)")


@pytest.mark.parametrize("host", ["", "example.org", "1.2.3", "127.0.0.1:80"])
async def test_what_is_no_address_is_refused(host: str) -> None:
    assert f"host {host}: not an IP address; give one such as 127.0.0.1" in await refusal(host, 0)


@pytest.mark.parametrize("port", [-1, 1 << 16])
async def test_what_is_no_port_is_refused(port: int) -> None:
    assert f"port {port}: must be from 0 to 65535; choose another" in await refusal("localhost", port)


async def test_a_port_that_is_taken_is_refused_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = await refusal("127.0.0.1", port)
    assert said.startswith(f"port {port}: cannot listen there: Address already in use; choose another, or 0")
