"""A chat model of LangChain."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from .script import END, QUESTION, TOOL, Result, Script, run


class Scripted(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[BaseTool], **_: object) -> BaseChatModel:
        (tool,) = tools
        self.script.offered = convert_to_openai_tool(tool)["function"]
        return self

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        results = [result(message) for message in messages if isinstance(message, ToolMessage)]
        arguments = self.script.next(results)
        calls = [] if arguments is None else [{"name": TOOL, "args": arguments, "id": str(len(results))}]
        message = AIMessage("" if calls else END, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def result(message: ToolMessage) -> Result:
    blocks = message.content_blocks
    images = [f"data:{block['mime_type']};base64,{block['base64']}" for block in blocks if block["type"] == "image"]
    return Result("".join(block["text"] for block in blocks if block["type"] == "text"), images)


async def converse(recipe: ModuleType, script: Script) -> str:
    return await recipe.ask(Scripted(script=script), QUESTION)


if __name__ == "__main__":
    run(converse)
