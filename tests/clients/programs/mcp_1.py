"""The client of the `mcp` package, version 1."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client  # type: ignore[attr-defined]  # not in version 2

from .scenario import Client, Shown, Target, run


def streams(target: Target) -> AbstractAsyncContextManager[Any]:
    if target.way == "stdio":
        return stdio_client(StdioServerParameters(command=target.command))
    return (sse_client if target.way == "sse" else streamablehttp_client)(target.address)


def shown(result: Any) -> Shown:
    """A result in the protocol's own form, as several clients return it."""
    text = "\n".join(block.text for block in result.content if block.type == "text")
    images = [block.data for block in result.content if block.type == "image"]
    return Shown(text, images, result.isError)


class Session(Client):
    def __init__(self, session: Any) -> None:  # types would be those of version 2
        super().__init__()
        self._session = session

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None) -> Shown:
        wait = timedelta(seconds=limit) if limit else None
        return shown(await self._session.call_tool(tool, arguments, wait, self.progressed))


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    async with streams(target) as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        yield Session(session)


if __name__ == "__main__":
    run(connect)
