"""The tools of llama-index-tools-mcp."""

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from llama_index.core.tools import FunctionTool
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from mcp import Client as McpClient
from mcp import StdioServerParameters

from .scenario import Client, Shown, Target, run


class Tools(Client):
    def __init__(self, loaded: list[FunctionTool]) -> None:
        super().__init__()
        self._loaded: Mapping[str | None, FunctionTool] = {tool.metadata.name: tool for tool in loaded}

    async def tools(self) -> list[str]:
        return [str(name) for name in self._loaded]

    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None) -> Shown:
        output = await self._loaded[tool].acall(**arguments)
        images = [
            b64encode(block.resolve_image().read()).decode() for block in output.blocks if block.block_type == "image"
        ]
        return Shown(output.content, images, output.is_error)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Tools]:
    if target.way == "stdio":
        server = StdioServerParameters(command=target.command)
        async with McpClient(server, read_timeout_seconds=target.patience) as client:
            yield Tools(await McpToolSpec(client).to_tool_list_async())
    else:
        basic = BasicMCPClient(target.address, timeout=target.patience)  # each call makes a connection of its own
        yield Tools(await McpToolSpec(basic).to_tool_list_async())


take = Tools


@asynccontextmanager
async def defaults() -> AsyncIterator[Tools]:
    yield Tools(await McpToolSpec(BasicMCPClient("llm-sandbox-mcp")).to_tool_list_async())


if __name__ == "__main__":
    run(connect, silent=McpToolSpec)
