"""The same function for Chat Completions, which servers of many other models support too. Answers are only text."""

from typing import Any

from openai import AsyncOpenAI, pydantic_function_tool
from openai.types.chat import ChatCompletionMessageFunctionToolCall, ChatCompletionToolMessageParam
from sandbox_tool import DESCRIPTION, ExecuteCode, execute_json

from llm_sandbox_mcp import Sandboxes, Session

FUNCTION = pydantic_function_tool(ExecuteCode, name="execute_code", description=DESCRIPTION)


async def called(session: Session, call: ChatCompletionMessageFunctionToolCall) -> ChatCompletionToolMessageParam:
    """The answer to the model for a call of the function."""
    answer = await execute_json(session, call.function.arguments)
    return {"role": "tool", "tool_call_id": call.id, "content": answer.text}


async def ask(client: AsyncOpenAI, model: str, question: str) -> str:
    """Lets a model answer by running code, in a sandbox that is destroyed afterwards."""
    async with Sandboxes() as sandboxes, sandboxes.session() as session:
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            completion = await client.chat.completions.create(model=model, messages=messages, tools=[FUNCTION])
            message = completion.choices[0].message
            messages.append(message)
            calls = [call for call in message.tool_calls or [] if call.type == "function"]
            if not calls:
                return message.content or ""
            messages += [await called(session, call) for call in calls]
