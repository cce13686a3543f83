"""An agent of the OpenAI Agents SDK with the tools of the server, which it starts on stdio."""

from agents import Agent, Model, Runner
from agents.mcp import MCPServerStdio

PATIENCE = 300.0
"""Seconds that one call can take. The SDK's default of 5 is too short for code, and for preparing libraries once."""


async def ask(model: str | Model, question: str) -> str:
    """Lets an agent answer by running code; its sessions end with the server."""
    async with MCPServerStdio({"command": "llm-sandbox-mcp"}, client_session_timeout_seconds=PATIENCE) as server:
        agent = Agent("analyst", model=model, mcp_servers=[server])
        return str((await Runner.run(agent, question)).final_output)
