"""A LangChain tool, and an agent that has it."""

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, tool
from sandbox_tool import DESCRIPTION, ExecuteCode, execute

from llm_sandbox_mcp import Sandboxes, Session


def code_tool(session: Session) -> BaseTool:
    """The tool of one conversation; the session keeps its state."""

    @tool("execute_code", description=DESCRIPTION, args_schema=ExecuteCode)
    async def run(code: str, language: str) -> list[dict[str, str]]:
        answer = await execute(session, code, language)
        images = [{"type": "image", "mime_type": image.mime_type, "base64": image.base64} for image in answer.images]
        return [{"type": "text", "text": answer.text}, *images]

    return run


async def ask(model: str | BaseChatModel, question: str) -> str:
    """Lets an agent answer by running code, in a sandbox that is destroyed afterwards."""
    async with Sandboxes() as sandboxes, sandboxes.session() as session:
        agent = create_agent(model, [code_tool(session)])
        state = await agent.ainvoke({"messages": [HumanMessage(question)]})
        return str(state["messages"][-1].text)
