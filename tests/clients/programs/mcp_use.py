"""The session of mcp-use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from mcp_use import MCPClient
from mcp_use.client.session import MCPSession

from .mcp_1 import shown
from .scenario import Client, Shown, Target, run


class Session(Client):
    def __init__(self, session: MCPSession) -> None:
        super().__init__()
        self._session = session

    async def tools(self) -> list[str]:
        return [tool.name for tool in await self._session.list_tools()]

    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None) -> Shown:
        return shown(await self._session.call_tool(tool, arguments, timedelta(seconds=limit) if limit else None))


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    server = {"command": target.command, "args": []} if target.way == "stdio" else {"url": target.address}
    client = MCPClient({"mcpServers": {"sandbox": server}})
    try:
        yield Session(await client.create_session("sandbox"))
    finally:
        await client.close_all_sessions()


if __name__ == "__main__":
    run(connect, silent=MCPSession.call_tool)
