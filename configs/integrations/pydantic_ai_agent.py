"""A Pydantic AI agent with the tools of the server, which it starts on stdio."""

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models import Model


async def ask(model: str | Model, question: str) -> str:
    """Lets an agent answer by running code; its sessions end with the server."""
    server = StdioTransport("llm-sandbox-mcp", [], keep_alive=False)
    tools = MCPToolset(server, init_timeout=60, tool_error_behavior="failed")
    async with Agent(model, toolsets=[tools]) as agent:
        return (await agent.run(question)).output
