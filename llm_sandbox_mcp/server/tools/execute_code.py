"""The tool `execute_code`: runs code, and answers when it has ended or the call has waited for long enough."""

from typing import Any

from mcp.types import CallToolResult

from ...base.errors import InvalidArgument
from ...service import Service
from ...service.ask import Ask
from ..access import principal_of
from ..answering import answer
from ..audience import Context, origin_of
from ..schemas import ExecuteCode
from ..task_extension import Tasks


async def execute_code(
    service: Service, tasks: Tasks, ctx: Context, arguments: ExecuteCode
) -> CallToolResult | dict[str, Any]:
    """The result of the run; if it goes on, what is known about it, or a task for a client that knows tasks."""
    given = dict(arguments)  # by the names that `Ask` has, but for two
    del given["timeout_seconds"], given["wait_seconds"]
    timeout = _timeout(arguments, service.profile.limits.timeout)
    ask = Ask(caller=principal_of(ctx.request), origin=origin_of(ctx), timeout=timeout, looks=True, **given)
    return await answer(service, tasks, ctx, ask, arguments.wait_seconds)


def _timeout(arguments: ExecuteCode, longest: float) -> float | None:
    # A profile can allow less than the default; only a timeout that the caller sent is refused.
    if "timeout_seconds" not in arguments.model_fields_set:
        return None
    if arguments.timeout_seconds > longest:
        sent = f"{arguments.timeout_seconds:g}"
        raise InvalidArgument(
            f"timeout_seconds must be at most {longest:g}; got {sent}",
            "send less, or let the operator raise limits.timeout in the profile",
        )
    return arguments.timeout_seconds
