"""The tools that langchain-mcp-adapters makes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from .scenario import Client, Shown, Target, run


class Tools(Client):
    def __init__(self, loaded: Sequence[BaseTool] = ()) -> None:
        super().__init__()
        self.loaded = loaded

    async def tools(self) -> list[str]:
        return [tool.name for tool in self.loaded]

    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None) -> Shown:
        (chosen,) = [one for one in self.loaded if one.name == tool]
        # As agents call it: the result is a message to the model.
        message = await chosen.ainvoke({"type": "tool_call", "id": "1", "name": tool, "args": arguments})
        assert isinstance(message, ToolMessage)
        text = "\n".join(block["text"] for block in message.content_blocks if block["type"] == "text")
        images = [block["base64"] for block in message.content_blocks if block["type"] == "image"]
        return Shown(text, images, message.status == "error")

    async def progressed_at(self, progress: float, total: float | None, message: str | None, _: object) -> None:
        await self.progressed(progress, total, message)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Tools]:
    tools = Tools()
    callbacks = Callbacks(on_progress=tools.progressed_at)
    limit = {"session_kwargs": {"read_timeout_seconds": timedelta(seconds=target.patience)}}
    if target.way == "stdio":
        server = {"transport": "stdio", "command": target.command, "args": [], **limit}
        async with MultiServerMCPClient({"sandbox": server}).session("sandbox") as session:
            tools.loaded = await load_mcp_tools(session, callbacks=callbacks)
            yield tools
    else:
        transport = "sse" if target.way == "sse" else "streamable_http"
        client = MultiServerMCPClient(
            {"sandbox": {"transport": transport, "url": target.address, **limit}}, callbacks=callbacks
        )
        tools.loaded = await client.get_tools()  # each call makes a connection of its own
        yield tools


take = Tools


@asynccontextmanager
async def defaults() -> AsyncIterator[Tools]:
    server = {"transport": "stdio", "command": "llm-sandbox-mcp", "args": []}
    yield Tools(await MultiServerMCPClient({"sandbox": server}).get_tools())


if __name__ == "__main__":
    run(connect)
