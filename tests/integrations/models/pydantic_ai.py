"""A model of Pydantic AI."""

from types import ModuleType

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from .script import END, QUESTION, TOOL, Result, Script, run


def result(part: ToolReturnPart) -> Result:
    images = [file.data_uri for file in part.files if isinstance(file, BinaryContent)]
    return Result(part.model_response_str(), images)


async def converse(recipe: ModuleType, script: Script) -> str:
    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (tool,) = [tool for tool in info.function_tools if tool.name == TOOL]
        script.offered = {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
        parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        arguments = script.next([result(part) for part in parts])
        return ModelResponse([TextPart(END) if arguments is None else ToolCallPart(TOOL, arguments)])

    return await recipe.ask(FunctionModel(reply), QUESTION)


if __name__ == "__main__":
    run(converse)
