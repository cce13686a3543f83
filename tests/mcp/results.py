"""Helpers that call tools and read their answers."""

from typing import Any

from mcp import Client
from mcp.types import CallToolResult, TextContent


async def call(client: Client, tool: str, **arguments: Any) -> CallToolResult:
    """Calls a tool."""
    return await client.call_tool(tool, arguments)


def text(result: CallToolResult) -> str:
    """The text that a model reads first."""
    first = result.content[0]
    assert isinstance(first, TextContent)
    return first.text


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that must succeed."""
    result = await call(client, tool, **arguments)
    assert not result.is_error, text(result)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a call that must fail: one line, without a structured part."""
    result = await call(client, tool, **arguments)
    assert result.is_error, text(result)
    assert result.structured_content is None
    assert "\n" not in text(result)
    assert "pydantic" not in text(result)
    return text(result)
