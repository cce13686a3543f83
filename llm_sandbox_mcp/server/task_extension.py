"""The extension `io.modelcontextprotocol/tasks`: work that goes on is a task, for clients that say they know these.

Specified by SEP-2663 of the Model Context Protocol, for its version 2026-07-28 and later.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..base.errors import UnknownRun
from ..service.door import Door
from ..service.work import Work
from .audience import Context

EXTENSION = "io.modelcontextprotocol/tasks"
AT_ONCE = 0.25
"""Seconds in which work must end for its result to be returned at once: a client that polls loses nothing."""
_POLL_MS = 500


class TaskParams(RequestParams):
    """The parameters of all requests about a task; those of `tasks/update` have more, which no work asks for."""

    task_id: str


def declared(ctx: Context) -> bool:
    """Whether the client of this request knows tasks, in a version of the protocol that has them."""
    capabilities = ctx.session.client_capabilities
    known = capabilities is not None and EXTENSION in (capabilities.extensions or {})
    return known and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


class Tasks:
    """Answers requests about tasks. The id of a task is that of its work."""

    def __init__(self, door: Door, result_of: Callable[[Work], Awaitable[CallToolResult]]) -> None:
        """`result_of` makes the result of the call that work which has ended began with."""
        self._door = door
        self._result_of = result_of

    def created(self, work: Work) -> dict[str, Any]:
        """The answer to a call whose work goes on."""
        return self._described(work) | {"resultType": "task", "status": "working"}

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Answers tasks/get."""
        work = self._find(ctx, params)
        if not work.ended:
            return self._described(work) | {"status": "working"}
        if work.cancelled:
            return self._described(work) | {"status": "cancelled"}
        result = await self._result_of(work)
        answer = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return self._described(work) | {"status": "completed", "result": answer}

    async def update(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Answers tasks/update: no work asks for input, so there is nothing to update."""
        self._find(ctx, params)
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Answers tasks/cancel."""
        work = self._find(ctx, params)
        if not work.ended:
            work.cancel()
        return {}

    def _find(self, ctx: Context, params: TaskParams) -> Work:
        if not declared(ctx):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"the client must declare {EXTENSION}", data=needed)
        # Over HTTP, a header repeats the id for proxies; the package compares only the headers of its own methods.
        if ctx.request is not None and decode_header_value(ctx.request.headers.get(MCP_NAME_HEADER)) != params.task_id:
            raise MCPError(HEADER_MISMATCH, f"the {MCP_NAME_HEADER} header must be the taskId of the request")
        try:
            return self._door.get(params.task_id)
        except UnknownRun as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None

    def _described(self, work: Work) -> dict[str, Any]:
        ended = work.created + timedelta(seconds=work.duration) if work.ended else work.created
        return {
            "taskId": work.id,
            "createdAt": _stamp(work.created),
            "lastUpdatedAt": _stamp(ended),
            "ttlMs": round((work.duration + self._door.kept_for) * 1000),
            "pollIntervalMs": _POLL_MS,
        }


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
