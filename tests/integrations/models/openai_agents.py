"""A model of the OpenAI Agents SDK."""

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from agents import FunctionTool, Model, ModelResponse, ModelSettings, Tool, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from .script import END, QUESTION, TOOL, Result, Script, run


def result(item: Mapping[str, Any]) -> Result:
    output = item["output"]
    parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
    text = "".join(part["text"] for part in parts if part["type"] == "input_text")
    return Result(text, [part["image_url"] for part in parts if part["type"] == "input_image"])


class Scripted(Model):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def get_response(  # further keyword arguments are ignored
        self,
        system_instructions: str | None,
        input: str | Sequence[Any],  # noqa: A002
        model_settings: ModelSettings,
        tools: Sequence[Tool],
        *_: object,
        **__: object,
    ) -> ModelResponse:
        (tool,) = [tool for tool in tools if isinstance(tool, FunctionTool) and tool.name == TOOL]
        self._script.offered = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }
        results = [
            result(item) for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"
        ]
        arguments = self._script.next(results)
        return ModelResponse([said(arguments, str(len(results)))], usage=Usage(), response_id=None)

    def stream_response(self, *_: object, **__: object) -> Any:
        raise NotImplementedError


def said(arguments: Mapping[str, str] | None, number: str) -> ResponseFunctionToolCall | ResponseOutputMessage:
    """A call with these arguments; without arguments, the message that ends the conversation."""
    if arguments is not None:
        return ResponseFunctionToolCall(
            type="function_call", name=TOOL, call_id=number, arguments=json.dumps(arguments), status="completed"
        )
    text = ResponseOutputText(type="output_text", text=END, annotations=[])
    return ResponseOutputMessage(id=number, type="message", role="assistant", status="completed", content=[text])


async def converse(recipe: ModuleType, script: Script) -> str:
    set_tracing_disabled(True)
    return await recipe.ask(Scripted(script), QUESTION)


if __name__ == "__main__":
    run(converse)
