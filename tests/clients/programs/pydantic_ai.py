"""The toolset of Pydantic AI."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from pydantic_ai import BinaryContent
from pydantic_ai.mcp import MCPToolset

from .scenario import Client, Shown, Target, run


class Toolset(Client):
    def __init__(self, target: Target) -> None:
        super().__init__()
        transports = {
            "stdio": lambda: StdioTransport(target.command, [], keep_alive=False),
            "http": lambda: StreamableHttpTransport(target.address),
            "sse": lambda: SSETransport(target.address, sse_read_timeout=300),
        }
        self.toolset = MCPToolset[None](
            transports[target.way](),
            init_timeout=60,
            read_timeout=target.patience,
            progress_handler=self.progressed,
        )

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self.toolset.list_tools()]

    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None) -> Shown:
        result = await self.toolset.direct_call_tool(tool, arguments)
        parts = result if isinstance(result, list) else [result]
        images = [b64encode(part.data).decode() for part in parts if isinstance(part, BinaryContent)]
        # Models are shown the structured content, in JSON, unless there is a picture.
        texts = [part if isinstance(part, str) else json.dumps(part) for part in parts if isinstance(part, str | dict)]
        return Shown("\n".join(texts), images)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Toolset]:
    tools = Toolset(target)
    async with tools.toolset:
        yield tools


if __name__ == "__main__":
    run(connect)
