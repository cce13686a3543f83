"""An OpenAI function: its schema, the handler of a call, and a conversation on the Responses API that uses both."""

from openai import AsyncOpenAI, pydantic_responses_function_tool
from openai.types.responses import (
    ResponseFunctionCallOutputItemListParam,
    ResponseFunctionToolCall,
    ResponseInputParam,
)
from openai.types.responses.response_input_param import FunctionCallOutput
from sandbox_tool import DESCRIPTION, ExecuteCode, execute_json

from llm_sandbox_mcp import Sandboxes, Session

FUNCTION = pydantic_responses_function_tool(ExecuteCode, name="execute_code", description=DESCRIPTION)


async def called(session: Session, call: ResponseFunctionToolCall) -> FunctionCallOutput:
    """The answer to the model for a call of the function."""
    answer = await execute_json(session, call.arguments)
    output: ResponseFunctionCallOutputItemListParam = [{"type": "input_text", "text": answer.text}]
    output += [{"type": "input_image", "image_url": image.url} for image in answer.images]
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


async def ask(client: AsyncOpenAI, model: str, question: str) -> str:
    """Lets a model answer by running code, in a sandbox that is destroyed afterwards."""
    async with Sandboxes() as sandboxes, sandboxes.session() as session:
        new: ResponseInputParam = [{"role": "user", "content": question}]
        previous = None
        while new:
            response = await client.responses.create(
                model=model, input=new, previous_response_id=previous, tools=[FUNCTION]
            )
            previous = response.id
            new = [await called(session, item) for item in response.output if item.type == "function_call"]
        return response.output_text
