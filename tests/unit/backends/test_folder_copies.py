"""Folders in a sandbox that are copies: what is not known of them is an error."""

from typing import cast

import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.folder_copies import held_files, list_tree
from llm_sandbox_mcp.errors import Unavailable

pytestmark = pytest.mark.anyio


class Answering:
    """A sandbox whose tools print this; nothing if they did not end in time."""

    def __init__(self, output: bytes) -> None:
        self._output = output

    async def look(self, command: str, seconds: float) -> bytes:
        return self._output


@pytest.mark.parametrize("output", [b"", b"/data/out/a\0/data/ou", b"/data/out/a\0end", b"end\0/data/out/a\0"])
async def test_open_files_that_are_not_all_known_are_an_error(output: bytes) -> None:
    with pytest.raises(Unavailable, match="which files of /data/out code has open is not known"):
        await held_files(cast(Sandbox, Answering(output)), "/data/out")


async def test_open_files_are_named_without_their_folder() -> None:
    sandbox = cast(Sandbox, Answering(b"/data/out/a\0/data/out/b/c\0end\0"))
    assert await held_files(sandbox, "/data/out") == {"a", "b/c"}


async def test_a_list_that_is_not_whole_is_an_error() -> None:
    with pytest.raises(Unavailable, match="what is in /data/out cannot be listed"):
        await list_tree(cast(Sandbox, Answering(b"1.000000000\0\0")), "/data/out")
