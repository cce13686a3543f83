"""What a host can show of the server comes once, at the handshake, and only to clients whose protocol has it."""

import json
import tomllib
import xml.etree.ElementTree as ET
from base64 import b64decode
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp.types import SERVER_INFO_META_KEY, Implementation
from mcp.types.jsonrpc import JSONRPCRequest, JSONRPCResponse

from llm_sandbox_mcp.server import build_server
from tests.mcp.fake import FakeService
from tests.mcp.wire import CLIENT
from tests.promises import ROOT

pytestmark = pytest.mark.anyio


async def greeted(version: str) -> dict[str, Any]:
    """The answer to a client that asks for this version of the protocol of 2025 or before."""
    server = build_server(FakeService().service(), host_files=True)
    asked = JSONRPCRequest(jsonrpc="2.0", id=1, method="initialize", params={**CLIENT, "protocolVersion": version})
    with anyio.fail_after(10):
        async with (
            create_client_server_memory_streams() as ((answers, requests), streams),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(server.run, *streams, server.create_initialization_options())
            await requests.send(SessionMessage(asked))
            said = await answers.receive()
            tasks.cancel_scope.cancel()
    assert isinstance(said, SessionMessage) and isinstance(said.message, JSONRPCResponse)
    assert said.message.result["protocolVersion"] == version
    return said.message.result


def check(shown: Implementation | None) -> None:
    assert shown is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert shown.website_url == project["urls"]["Homepage"]
    assert shown.icons is not None
    [icon] = shown.icons
    kind, _, content = icon.src.partition(";base64,")
    assert kind == f"data:{icon.mime_type}" == "data:image/svg+xml"
    assert ET.fromstring(b64decode(content)).tag == "{http://www.w3.org/2000/svg}svg"


async def test_a_host_can_show_an_icon_and_a_website_and_the_handshake_stays_small() -> None:
    answer = await greeted("2025-11-25")
    check(Implementation.model_validate(answer["serverInfo"]))
    assert len(json.dumps(answer)) < 1500


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_an_older_client_gets_what_its_protocol_has(version: str) -> None:
    assert set((await greeted(version))["serverInfo"]) == {"name", "title", "version"}


async def test_in_2026_only_the_handshake_has_them_and_not_each_answer() -> None:
    async with Client(build_server(FakeService().service(), host_files=True), mode="auto") as client:
        assert client.protocol_version == "2026-07-28"
        check(client.server_info)
        listed = await client.list_resources()
        assert listed.meta is not None
        assert set(listed.meta[SERVER_INFO_META_KEY]) == {"name", "title", "version"}
