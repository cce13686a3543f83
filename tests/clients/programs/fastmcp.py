"""The client of FastMCP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import fastmcp
from fastmcp.client.transports import StdioTransport

from .scenario import Client, Shown, Target, run


class Connected(Client):
    def __init__(self, client: fastmcp.Client[Any]) -> None:
        super().__init__()
        self._client = client

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None) -> Shown:
        result = await self._client.call_tool(tool, arguments, timeout=limit, progress_handler=self.progressed)
        text = "\n".join(block.text for block in result.content if block.type == "text")
        return Shown(text, [block.data for block in result.content if block.type == "image"], result.is_error)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connected]:
    server = StdioTransport(target.command, [], keep_alive=False) if target.way == "stdio" else target.address
    async with fastmcp.Client(server) as client:
        yield Connected(client)


if __name__ == "__main__":
    run(connect)
