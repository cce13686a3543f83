"""The servers of the OpenAI Agents SDK."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents.mcp import MCPServer, MCPServerSse, MCPServerStdio, MCPServerStreamableHttp

from .scenario import Client, Shown, Target, run


class Server(Client):
    def __init__(self, server: MCPServer) -> None:
        super().__init__()
        self._server = server

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._server.list_tools()]

    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None) -> Shown:
        result = await self._server.call_tool(tool, arguments)
        text = "\n".join(block.text for block in result.content if block.type == "text")
        return Shown(text, [block.data for block in result.content if block.type == "image"], result.is_error)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Server]:
    limit = {"client_session_timeout_seconds": target.patience}
    if target.way == "stdio":
        server: Any = MCPServerStdio({"command": target.command}, **limit)
    else:
        kind = MCPServerSse if target.way == "sse" else MCPServerStreamableHttp
        server = kind({"url": target.address}, **limit)
    async with server:
        yield Server(server)


take = Server


@asynccontextmanager
async def defaults() -> AsyncIterator[Server]:
    async with MCPServerStdio({"command": "llm-sandbox-mcp"}) as server:
        yield Server(server)


if __name__ == "__main__":
    run(connect, silent=MCPServerStdio.call_tool)
