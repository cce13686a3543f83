"""Reads what callers send, within limits, and notices when callers are gone."""

import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from ...aio.tasks import open_tasks
from ...base.errors import InvalidArgument
from ...base.text import parsed_json
from ...base.units import format_size
from ...toml.corrections import first_mistake
from .models import NAME, SHARED, Body

LARGEST_BODY = 4 << 20
"""Bytes of a request's JSON, as at `/mcp`."""

_READ_ON = 64 << 20
"""Bytes beyond a limit that are read and dropped: a caller that is cut off while sending misses the answer."""

SESSION_HEADER = "X-Session-Id"

_Model = TypeVar("_Model", bound=Body)


class Refused(Exception):
    """A request that is refused with a status of HTTP."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def session_of(request: Request, body: Body | None = None) -> str:
    """The name of the session that a request is for; raises `Refused` if the name is not valid."""
    if body is not None and body.session_id is not None:
        return body.session_id
    name = request.headers.get(SESSION_HEADER, SHARED)
    if not re.fullmatch(NAME, name):
        raise Refused(422, f"{SESSION_HEADER}: a session name has 1 to 64 letters, digits and . _ -; choose another")
    return name


async def read_bytes(request: Request, limit: int) -> bytes:
    """The body; raises `Refused` if it has more bytes than the limit, whether the header announced them or not."""
    announced = request.headers.get("content-length", "")
    size = int(announced[:20]) if announced.isdecimal() else 0
    waits = "expect" in request.headers  # the caller waits for permission to send
    body = bytearray()
    if size <= (limit if waits else limit + _READ_ON):
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size <= limit:
                body += chunk
            elif size > limit + _READ_ON:
                break
    if size > limit:
        raise Refused(413, f"the body is larger than the limit of {format_size(limit)}; send less at once")
    return bytes(body)


async def read_json(request: Request, model: type[_Model]) -> _Model:
    """The body as the model's type, whatever its Content-Type: `curl -d` says that it sends a form.

    Pages of other sites, which need no permission to send forms, are known by Origin, and refused before this. Raises
    `Refused` or `InvalidArgument` with one line about what is wrong.
    """
    body = await read_bytes(request, LARGEST_BODY)
    try:
        return parsed_json(body, model.model_validate_json)
    except ValidationError as error:
        mistake = first_mistake(error)
    if mistake.kind == "json_invalid":
        raise InvalidArgument("the body is not valid JSON in UTF-8", "encode it with a JSON library")
    if mistake.key == "code" and mistake.kind in ("missing", "string_too_short"):
        raise InvalidArgument("no code in the body", 'send {"code": "..."}')
    reason = mistake.reason[:1].lower() + mistake.reason[1:]
    raise Refused(422, f"{mistake.key[:100] or 'the body'}: {reason}; see /openapi.json for valid requests")


async def until_gone(request: Request, handle: Callable[[Request], Awaitable[Response]]) -> Response:
    """Handles a request; if the caller disconnects meanwhile, raises `ClientDisconnect`."""
    read = anyio.Event()

    async def receive() -> Message:
        message = await request.receive()
        if not message.get("more_body", False):
            read.set()
        return message

    async def watch() -> None:
        if request.method == "POST":
            await read.wait()  # what arrives before is for the handler
        while (await request.receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    async with open_tasks() as tasks:
        tasks.start_soon(watch)
        response = await handle(Request(request.scope, receive))
        tasks.cancel_scope.cancel()
        return response
    raise ClientDisconnect
