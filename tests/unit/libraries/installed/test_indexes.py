"""Whether a package index answers, and what is said if it does not."""

import socket
from pathlib import Path

import pytest

from llm_sandbox_mcp.base.messages import joined
from llm_sandbox_mcp.libraries.installed.index_client import read_certificates
from llm_sandbox_mcp.libraries.installed.indexes import index_problem
from tests.local_index import LocalIndex, Page

pytestmark = pytest.mark.anyio


async def problem(address: str, *, folders: bool = False) -> str:
    found = await index_problem(address, await read_certificates(), {}, folders=folders)
    return joined(*found) if found else ""


@pytest.mark.parametrize("status", [200, 403, 404])
async def test_an_index_that_answers_is_usable(status: int, index: LocalIndex) -> None:
    index.pages["/simple"] = Page(b"", status=status)
    assert await problem(f"{index.url}/simple") == ""
    assert [path for path, _ in index.requests] == ["/simple"]


async def test_an_index_gets_its_credentials_and_is_not_usable_if_it_refuses_them(index: LocalIndex) -> None:
    index.pages["/"] = Page(b"", status=401)
    found = await problem(index.url.replace("//", "//me:hunter2@"))
    assert found == "127.0.0.1 refuses these credentials; write them as https://USER:PASSWORD@127.0.0.1"
    assert index.requests[0][1]["authorization"].startswith("Basic ")


async def test_an_index_that_is_broken_is_not_usable(index: LocalIndex) -> None:
    index.pages["/"] = Page(b"", status=503)
    assert await problem(index.url) == "127.0.0.1 answers with status 503; see its log"


async def test_an_index_where_nothing_listens_is_not_usable() -> None:
    with socket.socket() as taken:  # bound, so that nobody else gets the port, but not listening
        taken.bind(("127.0.0.1", 0))
        found = await problem(f"http://127.0.0.1:{taken.getsockname()[1]}/simple")
    assert found == "127.0.0.1 cannot be reached: Connection refused; correct the address, or start it"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("packages.example/simple", "the address must begin with http:// or https://"),
        ("https://me:hunter2@", "the address "),
        ("https://packages.example/simple?x=1", "the address must not contain"),
        ("/nowhere", "the address must begin with http:// or https://"),
    ],
)
async def test_an_address_that_is_none_is_refused_without_its_credentials(address: str, reason: str) -> None:
    found = await problem(address)
    assert found.startswith(reason) and "hunter2" not in found


async def test_an_index_of_prepared_libraries_can_be_a_folder(tmp_path: Path) -> None:
    for address in (str(tmp_path), tmp_path.as_uri()):
        assert await problem(address, folders=True) == ""
        assert await problem(address) != ""
    assert await problem(f"{tmp_path}/none", folders=True) == f"there is no folder {tmp_path}/none; correct the path"
