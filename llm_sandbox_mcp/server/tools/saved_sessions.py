"""The actions of `manage_session` on saved sessions: save, open, branch, saved, delete."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio

from ...base.errors import InvalidArgument, Unavailable
from ...base.results import Missing, Opened, SavedSession, described_contents
from ...base.text import one_line
from ...base.units import format_age, format_duration, format_size
from ...service import Service
from ..access import principal_of
from ..audience import Context
from ..progress import reporting
from ..schemas import ManageSession, SavedItem
from ..words import in_words

SAVED_ACTIONS = ("save", "open", "branch", "saved", "delete")
_NAMED = 20
"""Things that are missing that the text names; the structured content has all."""


async def act(service: Service, ctx: Context, arguments: ManageSession) -> tuple[str, str, dict[str, Any]]:
    """What the result says, the session that it is about, and the parts of its structured content."""
    action, name, session_id = arguments.action, arguments.name, arguments.session_id
    caller, states = principal_of(ctx.request), service.states
    if action in ("save", "open", "delete") and not name:
        step = "choose one" if action == "save" else "action saved lists those that exist"
        raise InvalidArgument(f"{action} needs a name", step)
    if action in ("save", "branch") and not session_id:
        raise InvalidArgument(f"{action} needs a session_id", "send the one that execute_code returned")
    if session_id:
        await service.keeping.wake(caller, session_id)
    if action == "saved":
        found = await states.saved(caller)
        return "\n".join(map(_line, found)) or "no saved sessions", "", {"saved": [*map(_item, found)]}
    if action == "delete":
        await states.delete(caller, name)
        return f"deleted: {name}", "", {}
    if action == "save":
        with _in_time(arguments.wait_seconds):
            saved = await states.save(caller, session_id, name, tmp=arguments.tmp)
        text = "\n".join((f"saved: {_line(saved)}", *_missing(saved.missing), *_notes(saved)))
        notes = [*map(in_words, saved.notes)]
        return text, session_id, {"saved": [_item(saved)], "missing": [*map(str, saved.missing)], "notes": notes}
    async with reporting(ctx.session.report_progress) as progress:
        if action == "open":
            opened = await states.open(caller, name, progress.line)
        else:
            with _in_time(arguments.wait_seconds):
                opened = await states.branch(caller, session_id, progress.line)
    head = f"opened {name}" if action == "open" else f"branched {session_id}"
    what = described_contents(opened.variables, opened.files)
    text = "\n".join((f"{head} as a new session: {what}", *_missing(opened.missing), *_notes(opened)))
    return (
        f"{text}\nsession_id: {opened.session_id}",
        opened.session_id,
        {
            "restored": {"variables": dict(opened.variables), "files": opened.files},
            "missing": [*map(str, opened.missing)],
            "notes": [*map(in_words, opened.notes)],
        },
    )


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    """Ends what takes longer: it waits for a run in the same session, and nothing has changed then."""
    with anyio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise Unavailable(
            f"it was not done within {format_duration(seconds)}, as when a run goes on in the session",
            "wait for the run, or cancel it; or give a larger wait_seconds",
        )


def _item(saved: SavedSession) -> SavedItem:
    return SavedItem(
        name=saved.name,
        age_seconds=round(saved.age),
        size_bytes=saved.size,
        variables=dict(saved.variables),
        files=saved.files,
        missing=[*map(str, saved.missing)],
        problem=saved.problem,
    )


def _line(saved: SavedSession) -> str:
    if saved.problem:
        return f"{saved.name}: cannot be opened: {saved.problem}"
    lost = f", {len(saved.missing)} not saved" if saved.missing else ""
    what = described_contents(saved.variables, saved.files)
    return f"{saved.name}: {what}{lost}, {format_size(saved.size)}, {format_age(saved.age)} old"


def _missing(missing: Sequence[Missing]) -> list[str]:
    lines = [f"missing: {one_line(str(one))}" for one in missing[:_NAMED]]
    return lines + ([f"missing: {len(missing) - _NAMED} more"] if len(missing) > _NAMED else [])


def _notes(of: SavedSession | Opened) -> list[str]:
    return [f"note: {in_words(note)}" for note in of.notes]
