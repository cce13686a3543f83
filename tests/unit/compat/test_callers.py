"""Who asks over HTTP without MCP is who sent the request, whoever gave the session its name."""

import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from llm_sandbox_mcp.base.errors import PolicyDenied
from llm_sandbox_mcp.base.principal import ANONYMOUS, TOKEN
from llm_sandbox_mcp.compat.rest.routes import Rest
from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.service.ask import Ask, Checked
from tests.mcp.fake import FakeService

pytestmark = pytest.mark.anyio


class Refusing(FakeService):
    """Refuses everything, once it is written down who asks."""

    async def check(self, ask: Ask) -> Checked:
        await super().check(ask)
        raise PolicyDenied("not this")


def post(body: dict[str, object], *, token: bool) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    user = SimpleNamespace(is_authenticated=token)
    return Request({"type": "http", "method": "POST", "path": "/", "headers": [], "user": user}, receive)


async def ask(handle: Callable[[Request], Awaitable[Response]], body: dict[str, object], *, token: bool) -> None:
    with pytest.raises(PolicyDenied):
        await handle(post({**body, "session_id": "one"}, token=token))


async def test_each_request_has_its_own_caller() -> None:
    fake = Refusing(languages=included_languages())
    rest = Rest(fake.service())
    with rest._sessions.using("one", TOKEN):
        for token in (True, False):
            await ask(rest.install_libraries, {"libraries": ["six"]}, token=token)
            await ask(rest.execute_code, {"code": "1"}, token=token)
    assert fake.callers == [TOKEN, TOKEN, ANONYMOUS, ANONYMOUS]
