"""Answers about work: waits for it as long as a call may take, and tells a model what came of it or how far it is."""

from collections.abc import Sequence
from typing import Any

from mcp.types import CallToolResult, ContentBlock

from ..base.errors import SandboxError
from ..base.results import REPEATED, Execution, Installation, Output
from ..base.text import one_line, valid
from ..base.units import format_size
from ..runs.verdict import excerpt
from ..service import Service
from ..service.ask import Ask
from ..service.work import Listener, Result, Work
from .audience import Context
from .content import attach, describe_artifacts, failure, item, success
from .progress import reporting
from .schemas import Executed, Installed, LibraryItem
from .task_extension import AT_ONCE, Tasks, declared
from .words import UNFORESEEN, in_words

_ALONE = ", and nothing else can run in its session"
_HOW_FAR = {
    "waiting": "it has not begun: it waits for its turn in the session",
    "installing": f"its libraries are being installed{_ALONE}",
    "running": f"its code is running{_ALONE}",
    "saving": "its code has run: the files that it left are being saved",
    "ended": "it has ended",
}


async def answer(
    service: Service, tasks: Tasks, ctx: Context, ask: Ask, wait_seconds: float
) -> CallToolResult | dict[str, Any]:
    """Starts work. Its result; if it goes on, what is known about it, or a task for a client that knows tasks."""
    checked = await service.door.check(ask)
    await service.keeping.wake(ask.caller, ask.session_id)
    work = service.door.start(checked)
    audience = ctx.lifespan_context
    audience.note_use(ctx, work.session_id)
    knows_tasks = declared(ctx)
    seconds = min(wait_seconds, AT_ONCE) if knows_tasks else wait_seconds
    try:
        async with audience.calls.waiting(ctx, work), reporting(ctx.session.report_progress) as progress:
            result = await work.wait(seconds, Listener(progress.output, progress.line))
    except Exception:  # it is the answer; a call that is cancelled gets none
        service.door.forget(work)
        raise
    if result is None and knows_tasks:
        return tasks.created(work)
    answered = success(*await about(service, work, result))
    if result is not None:
        service.door.forget(work)
    return answered


async def result_of(service: Service, work: Work) -> CallToolResult:
    """The result of the call that work which has ended began with."""
    try:
        return success(*await about(service, work, await work.wait()))
    except SandboxError as error:
        return failure(in_words(error))
    except Exception:  # it is in the log
        return failure(UNFORESEEN)


async def about(
    service: Service, work: Work, result: Result | None
) -> tuple[str, Executed | Installed, list[ContentBlock]]:
    """The result of work, or what is known about it if it goes on: as text, as a value, and with its pictures."""
    attached: list[ContentBlock] = []
    notes: list[str] = []
    if isinstance(result, Execution):
        attached, notes = await attach(service, result.session_id, result.artifacts, result.overview)
    if result is not None:
        work.taken()
    if work.installs:
        libraries = installed(result) if isinstance(result, Installation) else _installing(service, work)
        return describe_installed(libraries), libraries, attached
    if not isinstance(result, Execution):
        run = _running(service, work)
        return describe_run(run), run, attached
    run = executed(result, notes)
    return describe_run(run), _shortened(run), attached


def _shortened(run: Executed) -> Executed:
    """The run without the middle of long outputs: they are in the text of the answer, and whole in a file."""
    stdout = _ends(run.stdout, run.stdout_omitted_bytes)
    stderr = _ends(run.stderr, run.stderr_omitted_bytes)
    return run.model_copy(
        update={
            "stdout": stdout.text,
            "stderr": stderr.text,
            "result": _ends(run.result, 0).text,
            "stdout_omitted_bytes": stdout.omitted,
            "stderr_omitted_bytes": stderr.omitted,
        }
    )


def _ends(text: str, omitted: int) -> Output:
    """A text without its middle, if it is long; `omitted` is what is missing in it already."""
    data = valid(text).encode()
    return excerpt(data, REPEATED, omitted) if len(data) > REPEATED else Output(text, omitted)


def installed(installation: Installation) -> Installed:
    """The structured content of an installation that has ended: what it changed, and how much it left as it was."""
    before = {*installation.before}
    changed = [found for found in installation.libraries if found not in before]
    return Installed(
        status=installation.status,
        run_id="",
        session_id=installation.session_id,
        libraries=[LibraryItem(name=found.name, version=found.version) for found in changed],
        unchanged=len(installation.libraries) - len(changed),
        output="",
        notes=[*map(in_words, installation.notes)]
        if installation.status == "ok"
        else ["it was cancelled, and what is installed now is not known; install again"],
    )


def _installing(service: Service, work: Work) -> Installed:
    _, output = work.read()
    return Installed(
        status="running",
        run_id=work.id,
        session_id=work.session_id,
        libraries=[],
        unchanged=0,
        output=output.text,
        notes=[_come_back(service, work), *_omitted("output", output.omitted)],
    )


def executed(execution: Execution, on_pictures: Sequence[str] = ()) -> Executed:
    """The structured content of a run that has ended, with what there is to say about its pictures."""
    streams = ("stdout", execution.stdout), ("stderr", execution.stderr)
    notes = [f"{name}: {one.replaced} were replaced by U+FFFD" for name, one in streams if one.replaced]
    return Executed(
        status=execution.status,
        run_id="",
        exit_code=execution.exit_code,
        stdout=execution.stdout.text,
        stderr=execution.stderr.text,
        stdout_omitted_bytes=execution.stdout.omitted,
        stderr_omitted_bytes=execution.stderr.omitted,
        result=execution.result or "",
        duration_ms=round(execution.duration * 1000),
        session_id=execution.session_id,
        session_state=execution.session_state,
        artifacts=[item(execution.session_id, artifact) for artifact in execution.artifacts],
        notes=[*map(in_words, execution.notes), *notes, *on_pictures],
    )


def _running(service: Service, work: Work) -> Executed:
    stdout, stderr = work.read()
    return Executed(
        status="running",
        run_id=work.id,
        exit_code=-1,
        stdout=stdout.text,
        stderr=stderr.text,
        stdout_omitted_bytes=stdout.omitted,
        stderr_omitted_bytes=stderr.omitted,
        result="",
        duration_ms=round(work.duration * 1000),
        session_id=work.session_id,
        session_state="kept",
        artifacts=[],
        notes=[_come_back(service, work)],
    )


def _omitted(name: str, size: int) -> list[str]:
    return [f"{format_size(size)} of {name} were left out"] if size else []


def _come_back(service: Service, work: Work) -> str:
    return (
        f"{_how_far(service, work)}; call manage_session with this run_id and wait for its result, read for new "
        "output, or cancel"
    )


def _how_far(service: Service, work: Work) -> str:
    if work.state != "preparing":
        return _HOW_FAR[work.state]
    going_on, language = service.preparing(), work.language
    names = [name for name in (language.name, *language.handler.companions) if name in going_on]
    return f"it has not begun: {going_on[names[0]] if names else 'the sandbox is being prepared'}{_ALONE}"


def describe_run(run: Executed) -> str:
    """A run as text. The server's lines come first, so that output of the code cannot precede them or cut them off."""
    lines = []
    if run.status == "running":
        lines.append(f"status: running for {run.duration_ms / 1000:.3g} s\nrun: {run.run_id}")
    elif run.status != "ok":
        lines.append(f"status: {run.status} (exit code {run.exit_code})")
    lines.append(f"session: {run.session_id} ({run.session_state})")
    lines += [f"note: {note}" for note in run.notes]
    omitted = [*_omitted("stdout", run.stdout_omitted_bytes), *_omitted("stderr", run.stderr_omitted_bytes)]
    lines += [f"note: {note}" for note in omitted]
    lines += describe_artifacts(run.artifacts)
    printed = [(name, text) for name, text in (("stdout", run.stdout), ("stderr", run.stderr)) if text]
    if run.result:
        printed.append(("result", run.result))
    lines += [f"{name}:\n{text.removesuffix(chr(10))}" for name, text in printed]
    if not printed:
        lines.append("(no output)")
    return "\n".join(lines)


def describe_installed(installed: Installed) -> str:
    """An installation as text."""
    notes = [f"note: {note}" for note in installed.notes]
    if installed.status != "ok":
        lines = [f"status: {installed.status}"]
        if installed.run_id:
            lines.append(f"run: {installed.run_id}")
        lines += [f"session: {installed.session_id}", *notes]
        if installed.output:
            lines.append(f"output:\n{installed.output.rstrip()}")
        return "\n".join(lines)
    # On one line: the names come from files that code may have written.
    names = ", ".join(f"{library.name} {library.version}" for library in installed.libraries)
    shown = one_line(names) or "nothing; the libraries were already available"
    if names and installed.unchanged:
        shown += f"; and {installed.unchanged} more, as before"
    return "\n".join([f"session: {installed.session_id}", *notes, f"installed: {shown}"])
