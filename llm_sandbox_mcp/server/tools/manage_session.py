"""The tool `manage_session`: lists sessions and runs, acts on a session, waits for work or cancels it."""

from collections.abc import Sequence
from typing import Any

from mcp.types import CallToolResult

from ...base.errors import InvalidArgument, StoreFailed
from ...base.messages import Note
from ...base.results import SessionInfo
from ...service import Service
from ...service.work import Listener
from ..access import principal_of
from ..answering import about
from ..audience import Context
from ..content import success
from ..progress import reporting
from ..schemas import Managed, ManageSession, SessionItem
from ..words import in_words
from .saved_sessions import SAVED_ACTIONS, act

_DONE = {"interrupt": "interrupted", "clear": "cleared", "restart": "restarted", "reset": "reset", "close": "closed"}


async def manage_session(service: Service, alone: bool, ctx: Context, arguments: ManageSession) -> CallToolResult:
    """What was done, with the session as it is now. `alone`: there is only one client."""
    action, session_id = arguments.action, arguments.session_id
    if action == "list":
        return _list(service, _visible(service, alone, ctx, session_id), await _aside(service, ctx))
    if action in ("wait", "read", "cancel"):
        return await _manage_work(service, ctx, arguments)
    if action in SAVED_ACTIONS:
        return await _manage_saved(service, ctx, arguments)
    if not session_id:
        raise InvalidArgument(f"session_id: {action} needs one", "send the one that execute_code returned")
    notes: Sequence[Note] = ()
    done, caller = _DONE[action], principal_of(ctx.request)
    if action != "close":
        await service.keeping.wake(caller, session_id)
    if action == "interrupt":
        if not await service.sessions.interrupt(session_id):
            done = "nothing to interrupt, as nothing runs"
    elif action == "clear":
        await service.sessions.clear(session_id)
    elif action == "restart":
        await service.sessions.restart(session_id)
    elif action == "reset":
        notes = await service.sessions.reset(session_id)
    elif not await service.keeping.discard(caller, session_id):
        notes = await service.sessions.close(session_id)
    ctx.lifespan_context.note_use(ctx, session_id)
    lines = [f"{done}: {session_id}", *(f"note: {in_words(note)}" for note in notes)]
    return success("\n".join(lines), _managed(service, action, session_id, notes=[*map(in_words, notes)]))


async def _aside(service: Service, ctx: Context) -> str:
    """A line about the sessions that are put aside, if there are any."""
    try:
        number = await service.keeping.number(principal_of(ctx.request))
    except StoreFailed as error:  # which costs nobody the list of the others
        return f"put aside: unknown, as {error}"
    return f"put aside: {number}; a call with the session_id of one opens it again" if number else ""


def _list(service: Service, infos: list[SessionInfo], aside: str) -> CallToolResult:
    sessions, pool = [_item(service, info) for info in infos], _pool(service)
    lines = [_describe(service, session) for session in sessions] or ["no sessions"]
    if aside:
        lines.append(aside)
    lines.append(f"sandboxes: {pool['leased']} in use, {pool['warm']} warm, {pool['max']} at most")
    return success("\n".join(lines), _managed(service, "list", sessions=sessions))


async def _manage_saved(service: Service, ctx: Context, arguments: ManageSession) -> CallToolResult:
    text, session_id, parts = await act(service, ctx, arguments)
    if session_id:
        ctx.lifespan_context.note_use(ctx, session_id)
    return success(text, _managed(service, arguments.action, session_id, **parts))


async def _manage_work(service: Service, ctx: Context, arguments: ManageSession) -> CallToolResult:
    if not arguments.run_id:
        raise InvalidArgument(
            f"run_id: {arguments.action} needs one", "send the one that its call returned; action list shows all"
        )
    work = service.door.get(arguments.run_id)
    ctx.lifespan_context.note_use(ctx, work.session_id)
    if arguments.action == "cancel":
        work.cancel()
    seconds = 0 if arguments.action == "read" else arguments.wait_seconds
    async with reporting(ctx.session.report_progress) as progress:
        result = await work.wait(seconds, Listener(progress.output, progress.line))
    text, found, attached = await about(service, work, result)
    answer = _managed(service, arguments.action, work.session_id, run=found.model_dump(mode="json"))
    return success(text, answer, attached)


def _managed(service: Service, action: str, session_id: str = "", **parts: Any) -> Managed:
    """The answer, with the session as it is now, and these parts; the others are empty."""
    sessions = [_item(service, info) for info in service.sessions.list() if info.id == session_id]
    rest: dict[str, Any] = {"run": {}, "saved": [], "restored": {}, "missing": [], "notes": []}
    known = {"action": action, "session_id": session_id, "sessions": sessions, "pool": _pool(service)}
    return Managed(**{**rest, **known, **parts})


def _item(service: Service, info: SessionInfo) -> SessionItem:
    return SessionItem(
        session_id=info.id,
        running=info.running,
        languages=[*info.languages],
        runs=info.runs,
        age_seconds=round(info.age),
        expires_in_seconds=round(info.expires_in),
        run_ids=[work.id for work in service.door.of_session(info.id)],
    )


def _describe(service: Service, session: SessionItem) -> str:
    runs = [
        f"\n  {'installation' if work.installs else 'run'} {work.id}: "
        f"{f'ended ({work.outcome})' if work.ended else work.state}, {work.duration:.1f} s"
        for work in service.door.of_session(session.session_id)
    ]
    return (
        f"{session.session_id}: {'running' if session.running else 'idle'}, {session.runs} runs, "
        f"{', '.join(session.languages) or 'no language yet'}, "
        f"{'put aside' if service.profile.sessions.keep else 'expires'} in {session.expires_in_seconds} s"
        + "".join(runs)
    )


def _pool(service: Service) -> dict[str, int]:
    pool = service.pool()
    return {"warm": pool.warm, "leased": pool.leased, "max": pool.max}


def _visible(service: Service, alone: bool, ctx: Context, session_id: str) -> list[SessionInfo]:
    # An id is enough to use a session. On stdio, every session belongs to the only client. Over HTTP, clients share
    # the server, so each sees only the sessions that its own connection used. In the 2026 protocol, every request
    # is a connection, so a request sees only the session that it names.
    infos = service.sessions.list()
    if session_id:
        return [info for info in infos if info.id == session_id]
    if alone:
        return [*infos]
    used = ctx.lifespan_context.peer(ctx).sessions
    return [info for info in infos if info.id in used]
