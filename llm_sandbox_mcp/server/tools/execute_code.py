"""The tool `execute_code`: runs code, and answers when it has ended or the call has waited for long enough."""

from typing import Any

from mcp.types import CallToolResult, ContentBlock

from ...base.errors import InvalidArgument, SandboxError
from ...base.results import Execution
from ...service import Service
from ...service.background import BackgroundRun, Listener
from ..audience import Context, caller_of
from ..content import attach, describe_run, failure, going_on, structured, success
from ..progress import reporting
from ..schemas import ExecuteCode, Executed
from ..task_extension import AT_ONCE, Tasks, declared
from ..words import UNFORESEEN, in_words


async def execute_code(
    service: Service, tasks: Tasks, ctx: Context, arguments: ExecuteCode
) -> CallToolResult | dict[str, Any]:
    """The result of the run; if it goes on, what is known about it, or a task for a client that knows tasks."""
    run = await service.runs.start(
        arguments.code,
        caller_of(ctx),
        language=arguments.language,
        session_id=arguments.session_id,
        libraries=arguments.libraries,
        timeout=_timeout(arguments, service.profile.limits.timeout),
        variables=arguments.variables,
        stdin=arguments.stdin,
        keep_session=arguments.keep_session,
    )
    audience = ctx.lifespan_context
    audience.note_use(ctx, run.session_id)
    knows_tasks = declared(ctx)
    seconds = min(arguments.wait_seconds, AT_ONCE) if knows_tasks else arguments.wait_seconds
    try:
        async with audience.calls.waiting(ctx, run), reporting(ctx.session.report_progress) as progress:
            execution = await run.wait(seconds, Listener(progress.output, progress.line))
    except Exception:  # it is the answer; a call that is cancelled gets none
        service.runs.forget(run)
        raise
    if execution is None and knows_tasks:
        return tasks.created(run)
    answer, attached = await answer_about(service, run, execution)
    if execution is not None:
        service.runs.forget(run)
    return success(describe_run(answer), answer, attached)


async def answer_about(
    service: Service, run: BackgroundRun, execution: Execution | None
) -> tuple[Executed, list[ContentBlock]]:
    """The result of a run, or what is known about it if it goes on."""
    if execution is None:
        return going_on(run), []
    attached = await attach(service, execution.session_id, execution.artifacts)
    run.taken()
    return structured(execution), attached


async def result_of(service: Service, run: BackgroundRun) -> CallToolResult:
    """The result of the call that a run which has ended began with."""
    try:
        answer, attached = await answer_about(service, run, await run.wait())
    except SandboxError as error:
        return failure(in_words(error))
    except Exception:  # it is in the log
        return failure(UNFORESEEN)
    return success(describe_run(answer), answer, attached)


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
