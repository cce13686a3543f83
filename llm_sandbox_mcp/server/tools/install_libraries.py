"""The tool `install_libraries`: installs libraries into a session, and answers as `execute_code` does."""

from typing import Any

from mcp.types import CallToolResult

from ...service import Service
from ...service.ask import Ask
from ..access import principal_of
from ..answering import answer
from ..audience import Context, origin_of
from ..schemas import InstallLibraries
from ..task_extension import Tasks


async def install_libraries(
    service: Service, tasks: Tasks, ctx: Context, arguments: InstallLibraries
) -> CallToolResult | dict[str, Any]:
    """The libraries of the session, with their versions; if it goes on, what is known about it, or a task."""
    ask = Ask(
        caller=principal_of(ctx.request),
        origin=origin_of(ctx),
        language=arguments.language,
        session_id=arguments.session_id,
        libraries=arguments.libraries,
    )
    return await answer(service, tasks, ctx, ask, arguments.wait_seconds)
