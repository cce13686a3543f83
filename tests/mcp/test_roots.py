"""Roots: folders that the client offers can be read if the operator allows it, and only then."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import INVALID_REQUEST, ErrorData, ListRootsResult, Root

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.testing.asking import open_session
from llm_sandbox_mcp.wiring import open_service

from .results import answer, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded"), pytest.mark.one_protocol]

NOT_LISTED = "the client did not list its roots; send the file's content instead"


@dataclass
class Host:
    """A host with folders that it offers; it counts how often it is asked for them."""

    roots: list[str]
    asked: int = 0
    error: bool = False
    session_id: str = ""

    def given(self, path: Path) -> dict[str, str]:
        """The arguments of a call that copies a file."""
        return {"session_id": self.session_id, "path": "in", "host_path": str(path)}

    async def list_roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        self.asked += 1
        if self.error:
            return ErrorData(code=INVALID_REQUEST, message="no")
        return ListRootsResult(roots=[Root(uri=uri) for uri in self.roots])  # type: ignore[arg-type]


@asynccontextmanager
async def connected(
    host: Host, era: str, *, allowed: bool = True, folders: tuple[str, ...] = (), host_files: bool = True
) -> AsyncIterator[Client]:
    profile = load_profile(over={"files": {"client_roots": allowed, "folders": [*folders]}})
    with anyio.fail_after(60):
        async with (
            open_service(profile) as service,
            Client(
                build_server(service, host_files=host_files), mode=era, list_roots_callback=host.list_roots
            ) as client,
        ):
            host.session_id = open_session(service, "bash")
            yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my project"
    made.mkdir()
    (made / "table.csv").write_text("a,b")
    (tmp_path / "other.csv").write_text("other")
    return made


async def test_files_of_a_root_are_copied_in_if_the_operator_allows_it(era: str, folder: Path) -> None:
    host = Host([folder.as_uri(), "file://elsewhere/x"])
    async with connected(host, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        described = tools["copy_file"].input_schema["properties"]["host_path"]["description"]
        assert described.endswith("below a root of this client; direction out: nowhere")
        assert host.asked == 0
        copied = await answer(client, "copy_file", **host.given(folder / "table.csv"))
        assert (copied["size_bytes"], host.asked) == (3, 1)
        said = await refusal(client, "copy_file", **host.given(folder.parent / "other.csv"))
        assert said.endswith(f"outside the folders that are open for reading: {folder}")
        said = await refusal(client, "copy_file", direction="out", **host.given(folder / "new"))
        assert "no folder on this machine is open for writing" in said


async def test_roots_are_not_asked_for_unless_the_operator_allows_it(era: str, folder: Path) -> None:
    for allowed, host_files, reason in (
        (False, True, "no folder on this machine is open for reading"),
        (True, False, "only a server on stdio can copy files of its machine"),
    ):
        host = Host([folder.as_uri()])
        async with connected(host, era, allowed=allowed, host_files=host_files) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "host_path" not in tools["copy_file"].input_schema["properties"]
            assert reason in await refusal(client, "copy_file", **host.given(folder / "table.csv"))
        assert host.asked == 0


async def test_roots_are_open_beside_the_operators_folders_and_the_newest_count(era: str, folder: Path) -> None:
    own = folder.parent / "own"
    own.mkdir()
    (own / "mine").write_text("mine")
    host = Host([])
    async with connected(host, era, folders=(str(own),)) as client:
        assert (await answer(client, "copy_file", **host.given(own / "mine")))["size_bytes"] == 4
        assert "outside the folders" in await refusal(client, "copy_file", **host.given(folder / "table.csv"))
        host.roots.append(folder.as_uri())
        assert (await answer(client, "copy_file", **host.given(folder / "table.csv")))["size_bytes"] == 3


async def test_a_client_that_does_not_list_its_roots_is_told_what_to_do(folder: Path) -> None:
    host = Host([], error=True)
    async with connected(host, "legacy") as client:
        assert await refusal(client, "copy_file", **host.given(folder / "table.csv")) == NOT_LISTED
