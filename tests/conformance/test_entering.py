"""Listening in a container on this machine without starting a process in it."""

import os
from collections.abc import Mapping

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.containers.sandbox import ContainerSandbox
from llm_sandbox_mcp.backends.containers.settings import Mount
from llm_sandbox_mcp.backends.layout import PATH

pytestmark = pytest.mark.anyio

_ASK = "import socket; print(socket.create_connection(('127.0.0.1', {port}), 20).recv(9))"


@pytest.fixture(params=["docker", "podman"])
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def answered(sandbox: Sandbox) -> bytes:
    """What Python code inside the sandbox receives from the listener outside."""
    with anyio.fail_after(30):
        async with sandbox.listen() as listener:
            command = ["/usr/bin/python3", "-c", _ASK.format(port=listener.port)]
            async with await sandbox.spawn(command, {"PATH": PATH}) as process, await listener.accept() as stream:
                await stream.send(b"welcome")
                return b"".join([part async for part in process.stdout])


class TestWithoutPerl:
    @pytest.fixture
    def changes(self) -> dict[str, Mapping[str, object]]:
        return {"containers": {"mounts": (Mount(source="/dev/null", target="/usr/bin/perl"),)}}

    async def test_nothing_inside_is_needed_to_listen(self, sandbox: Sandbox) -> None:
        assert await answered(sandbox) == b"b'welcome'\n"


async def test_a_network_that_cannot_be_entered_is_reached_through_a_relay(sandbox: Sandbox) -> None:
    assert isinstance(sandbox, ContainerSandbox)
    assert sandbox.outside is not None
    os.close(sandbox.outside.network)
    sandbox.outside.network = os.open("/dev/null", os.O_RDONLY)
    assert await answered(sandbox) == b"b'welcome'\n"
