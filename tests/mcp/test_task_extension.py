"""Runs as tasks, for clients that declare the extension: created, polled, cancelled, and never given to other clients."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult, Request, RequestParams, Result

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.wiring import open_service

from .results import answer, call, text
from .talking import server
from .wire import CLIENT, message

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"
NEEDED = -32021
"""The code of an error for a client that did not declare the extension."""
CANCELLED = -1
"""The code of the error that `Polling` raises for a task without a result."""
ENDLESS = "print('on', flush=True)\nwhile True: pass"


class Task(Result):
    """A task as the server describes it."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int


class Polled(Result):
    """The answer to tasks/get."""

    task_id: str
    status: str
    created_at: str
    ttl_ms: int
    result: CallToolResult | None = None


class OfTask(RequestParams):
    task_id: str


class AboutTask(Request[OfTask, str]):
    """A request about a task."""

    method: str
    params: OfTask
    name_param = "taskId"


class Polling(ClientExtension):
    """Waits for tasks by polling; the tasks that it has seen are in `tasks`."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.cancel_first = False
        self._seen = anyio.Event()

    async def another(self) -> None:
        """Waits for the next task."""
        self._seen = anyio.Event()
        await self._seen.wait()

    def claims(self) -> list[ResultClaim[Task]]:
        return [ResultClaim(result_type="task", model=Task, resolve=self._resolve)]

    async def _resolve(self, task: Task, ctx: ClaimContext) -> CallToolResult:
        self.tasks.append(task)
        self._seen.set()
        if self.cancel_first:
            await about(ctx, "tasks/cancel", task.task_id, Result)
        while (found := await poll(ctx, task.task_id)).status == "working":
            assert (found.task_id, found.created_at) == (task.task_id, task.created_at)
            await anyio.sleep(0.05)
        if found.result is None:
            raise MCPError(CANCELLED, found.status)
        return found.result


async def about(ctx: Any, method: str, task_id: str, kind: Any) -> Any:
    request = AboutTask(method=method, params=OfTask(task_id=task_id))
    return await ctx.session.send_request(request, kind)


async def poll(ctx: Any, task_id: str) -> Polled:
    found: Polled = await about(ctx, "tasks/get", task_id, Polled)
    return found


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(60):
        yield


@pytest.fixture
def polling() -> Polling:
    return Polling()


@pytest.fixture
async def client(polling: Polling) -> AsyncIterator[Client]:
    async with (
        open_service(load_profile()) as service,
        Client(build_server(service, host_files=True), mode=MODERN, extensions=[polling]) as client,
    ):
        yield client


async def test_a_longer_run_is_a_task_and_its_result_is_that_of_the_call(client: Client, polling: Polling) -> None:
    code = "import time\nprint('on', flush=True)\ntime.sleep(1)\nopen('made.txt', 'w').write('a')\n6 * 7"
    result = await call(client, "execute_code", code=code)
    [task] = polling.tasks
    assert (task.status, task.result_type) == ("working", "task")
    assert result.structured_content is not None
    assert (result.structured_content["stdout"], result.structured_content["result"]) == ("on\n", "42")
    assert "made.txt" in text(result)


async def test_a_short_run_is_answered_at_once(client: Client, polling: Polling) -> None:
    opened = await answer(client, "execute_code", code="1")  # starts the sandbox, which can take longer
    polling.tasks.clear()
    assert (await answer(client, "execute_code", code="6 * 7", session_id=opened["session_id"]))["result"] == "42"
    assert polling.tasks == []


async def test_a_cancelled_task_keeps_its_session(client: Client, polling: Polling) -> None:
    opened = await answer(client, "execute_code", code="x = 7")
    polling.cancel_first = True
    session_id = opened["session_id"]
    with pytest.raises(MCPError, match="cancelled"):
        await call(client, "execute_code", code=ENDLESS, session_id=session_id)
    assert (await answer(client, "execute_code", code="x", session_id=session_id))["result"] == "7"


async def test_an_error_is_the_result_of_a_completed_task(client: Client, polling: Polling) -> None:
    session_id = (await answer(client, "execute_code", code="1"))["session_id"]
    polling.tasks.clear()

    async def first() -> None:
        with pytest.raises(MCPError, match="cancelled"):
            await call(client, "execute_code", code=ENDLESS, session_id=session_id)

    async def second() -> None:
        result = await call(client, "execute_code", code="1", session_id=session_id)
        assert result.is_error
        assert "is not open" in text(result)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await polling.another()
        tasks.start_soon(second)
        await polling.another()
        await answer(client, "manage_session", action="close", session_id=session_id)


async def test_unknown_tasks_are_refused(client: Client) -> None:
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        with pytest.raises(MCPError) as refused:
            await about(client, method, "0" * 32, Result)
        assert refused.value.error.code == INVALID_PARAMS


async def test_a_client_that_does_not_know_tasks_gets_none() -> None:
    async with (
        open_service(load_profile()) as service,
        Client(build_server(service, host_files=True), mode=MODERN) as client,
    ):
        going_on = await answer(client, "execute_code", code=ENDLESS, wait_seconds=0.5)
        assert going_on["status"] == "running"
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(MCPError) as refused:
                await about(client, method, going_on["run_id"], Result)
            assert refused.value.error.code == NEEDED
        await answer(client, "manage_session", action="cancel", run_id=going_on["run_id"])


async def test_old_clients_get_no_tasks_even_if_they_declare_the_extension() -> None:
    declaring = CLIENT | {"capabilities": {"extensions": {Polling.identifier: {}}}}
    arguments = {"code": ENDLESS, "wait_seconds": 0.5}
    async with server() as talk:
        await talk.send(message("initialize", declaring, 1))
        assert Polling.identifier not in str(await talk.receive())
        await talk.send(message("notifications/initialized"))
        await talk.send(message("tools/call", {"name": "execute_code", "arguments": arguments}, 2))
        going_on = (await talk.receive())["result"]
        assert going_on["structuredContent"]["status"] == "running"
        assert "resultType" not in going_on
        await talk.send(message("tasks/get", {"taskId": going_on["structuredContent"]["run_id"]}, 3))
        assert (await talk.receive())["error"]["code"] in (METHOD_NOT_FOUND, NEEDED)
