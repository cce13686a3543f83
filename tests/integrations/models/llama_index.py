"""A model of LlamaIndex that calls functions."""

from collections.abc import Sequence
from types import ModuleType

from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool

from .script import END, QUESTION, TOOL, Result, Script, run


def result(message: ChatMessage) -> Result:
    text = "".join(block.text for block in message.blocks if isinstance(block, TextBlock))
    return Result(text, [str(block.url) for block in message.blocks if isinstance(block, ImageBlock)])


async def converse(recipe: ModuleType, script: Script) -> str:
    def reply(messages: Sequence[ChatMessage], *, tools: Sequence[FunctionTool], **_: object) -> ChatMessage:
        (tool,) = tools
        script.offered = tool.metadata.to_openai_tool()["function"]
        results = [result(message) for message in messages if message.role == "tool"]
        arguments = script.next(results)
        if arguments is None:
            return ChatMessage(END, role="assistant")
        call = ToolCallBlock(tool_call_id=str(len(results)), tool_name=TOOL, tool_kwargs=arguments)
        return ChatMessage(role="assistant", blocks=[call])

    return await recipe.ask(MockFunctionCallingLLM(response_generator=reply, is_chat_model=True), QUESTION)


if __name__ == "__main__":
    run(converse)
