"""A model for OpenAI's two protocols, on loopback. It checks requests of clients with OpenAI's own types."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import ModuleType
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
)
from openai.types.chat.chat_completion import Choice
from openai.types.chat.chat_completion_message_function_tool_call import Function
from openai.types.responses import FunctionToolParam, Response, ResponseInputParam
from pydantic import BaseModel, TypeAdapter

from .openai_agents import result, said
from .script import END, QUESTION, TOOL, Result, Script, run

INPUT = TypeAdapter(ResponseInputParam)
FUNCTIONS = TypeAdapter(list[FunctionToolParam])
MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])
CHAT_FUNCTIONS = TypeAdapter(list[ChatCompletionFunctionToolParam])


class Model:
    """Answers requests in both protocols; for /responses it keeps the conversation itself."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._results: list[Result] = []

    def respond(self, body: Any) -> BaseModel:
        """Answers at /responses."""
        INPUT.validate_python(body["input"])
        (self._script.offered,) = FUNCTIONS.validate_python(body["tools"])
        self._results += [result(item) for item in body["input"] if item.get("type") == "function_call_output"]
        number = str(len(self._results))
        return Response(
            id=number,
            created_at=0,
            model="scripted",
            object="response",
            output=[said(self._script.next(self._results), number)],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )

    def complete(self, body: Any) -> BaseModel:
        """Answers at /chat/completions."""
        MESSAGES.validate_python(body["messages"])
        (tool,) = CHAT_FUNCTIONS.validate_python(body["tools"])
        self._script.offered = tool["function"]
        results = [Result(message["content"], []) for message in body["messages"] if message["role"] == "tool"]
        arguments = self._script.next(results)
        number = str(len(results))
        if arguments is None:
            message = ChatCompletionMessage(role="assistant", content=END)
        else:
            function = Function(name=TOOL, arguments=json.dumps(arguments))
            call = ChatCompletionMessageFunctionToolCall(id=number, type="function", function=function)
            message = ChatCompletionMessage(role="assistant", tool_calls=[call])
        choice = Choice(index=0, finish_reason="tool_calls" if message.tool_calls else "stop", message=message)
        return ChatCompletion(id=number, created=0, model="scripted", object="chat.completion", choices=[choice])


@contextmanager
def served(model: Model) -> Iterator[str]:
    """The address at which the model answers."""
    answers = {"/responses": model.respond, "/chat/completions": model.complete}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = answers[self.path](body).model_dump_json().encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Prints nothing: an error prints its own traceback, and the client gets no answer."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


async def converse(recipe: ModuleType, script: Script) -> str:
    with served(Model(script)) as url:
        async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:
            return await recipe.ask(client, "scripted", QUESTION)


if __name__ == "__main__":
    run(converse)
