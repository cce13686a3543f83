"""A server that a host starts with its old configuration entry for LLM Sandbox, with only the command replaced."""

import json
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextResourceContents

from tests.mcp.results import answer

from .command import ARGV, ROOT


class Started:
    """A server that a host started with an entry of its configuration."""

    def __init__(self, client: Client, log: Path) -> None:
        self.client = client
        self.log = log

    async def profile(self) -> Any:
        [contents] = (await self.client.read_resource("sandbox://profile")).contents
        assert isinstance(contents, TextResourceContents)
        return json.loads(contents.text)

    async def prints(self, code: str) -> str:
        given = await answer(self.client, "execute_code", code=code, language="bash", libraries=[])
        return str(given["stdout"])

    def deprecated(self) -> list[str]:
        """The variables that the log reports as deprecated, in order."""
        lines = self.log.read_text().splitlines()
        return [found[1] for line in lines if (found := re.search(r"WARNING \S+: (\w+) is deprecated: .*; ", line))]


@asynccontextmanager
async def started(env: Mapping[str, str], *options: str, argv: Sequence[str] = ARGV) -> AsyncIterator[Started]:
    program, *arguments = argv
    entry = StdioServerParameters(command=program, args=[*arguments, *options], env={"PYTHONPATH": str(ROOT), **env})
    with anyio.fail_after(120), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        with _writing(path) as log:
            async with Client(stdio_client(entry, log)) as client:
                yield Started(client, path)


def _writing(path: Path) -> TextIO:
    return path.open("w")
