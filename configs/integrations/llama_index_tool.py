"""A LlamaIndex tool, and an agent that has it."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ImageBlock, TextBlock
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import FunctionTool
from sandbox_tool import DESCRIPTION, ExecuteCode, execute

from llm_sandbox_mcp import Sandboxes, Session


def code_tool(session: Session) -> FunctionTool:
    """The tool of one conversation; the session keeps its state."""

    async def run(code: str, language: str) -> list[TextBlock | ImageBlock]:
        answer = await execute(session, code, language)
        return [TextBlock(text=answer.text), *(ImageBlock(url=image.url) for image in answer.images)]

    return FunctionTool.from_defaults(async_fn=run, name="execute_code", description=DESCRIPTION, fn_schema=ExecuteCode)


async def ask(model: FunctionCallingLLM, question: str) -> str:
    """Lets an agent answer by running code, in a sandbox that is destroyed afterwards."""
    async with Sandboxes() as sandboxes, sandboxes.session() as session:
        agent = FunctionAgent(tools=[code_tool(session)], llm=model)
        return str(await agent.run(question))
