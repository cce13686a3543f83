"""Notes about folders: what code sees of them, and what became of what it changed in its copies."""

from collections.abc import Collection, Sequence

from ..base.messages import Note, Step, listed
from ..base.open_folders import View
from ..base.text import one_line
from ..files.merging import parents, topmost
from ..files.report import Report

_DELETABLE = "only the operator can let code delete and move files there, with :rwd instead of :rw"
_UNUSUAL = "the run was stopped, crashed or reached a limit"
_NAMES_SHOWN = 10
_NAMES_KEPT = 1000
"""How many names a note has for programs."""


def notes_of(view: View, report: Report, *, whole: bool, last: bool) -> list[Note]:
    """What became of the changes of a run."""
    folder, notes = view.folder.path, []
    filled = {above for name in (*report.saved, *report.moved.values(), *report.folders) for above in parents(name)}
    saved = sorted((*report.saved, *(f"{name}/" for name in report.folders if name not in filled)))
    kept = sorted(topmost(report.kept))
    shown = {above for name in report.beside for above in parents(name.rstrip("/"))}
    beside = {
        name: other
        for name, other in sorted(report.beside.items())
        if name not in report.missing and name.rstrip("/") not in shown
    }
    missing = {name: report.beside[name] for name in sorted(report.missing)}
    for code, cause, names, step in (
        ("results_saved", f"saved in {folder}", saved, ""),
        ("results_moved", f"moved in {folder}", [f"{old} to {new}" for old, new in sorted(report.moved.items())], ""),
        ("results_deleted", f"deleted in {folder}", sorted(topmost(report.deleted)), ""),
        (
            "results_beside",
            f"{folder} has its own version of these files, and both are kept",
            [f"{name} (the code's is {other})" for name, other in beside.items()],
            "compare both, and keep what is right",
        ),
        (
            "results_beside",
            f"{folder} does not have these files any more, and the code's version is kept beside their names",
            [f"{name} (as {other})" for name, other in missing.items()],
            "delete it, or give it its name again",
        ),
        (
            "results_kept",
            f"still in {folder}, although code deleted or moved them"
            + (", since what it may have made of them is not saved" if view.folder.deletes else ""),
            kept,
            "" if view.folder.deletes else _DELETABLE,
        ),
        (
            "results_kept",
            f"still in {folder}, although code deleted them, since they have changed there or are in use",
            sorted(report.changed),
            "",
        ),
        (
            "results_kept",
            f"still in {folder}, although code deleted them, since they have something that code did not see",
            sorted(report.filled),
            "",
        ),
        (
            "results_kept",
            f"still in {folder}, although code deleted or moved them, "
            + ("since not all else is saved" if whole else f"since {_UNUSUAL}"),
            sorted(topmost(report.waiting)) if view.folder.deletes else [],
            "" if last else "that is done after another run of this session",
        ),
        (
            "results_open",
            f"not saved in {folder} yet, since code still has them open for writing",
            sorted(report.held),
            "close them in another run",
        ),
        (
            "permissions_kept",
            f"files of {view.place} whose permissions are not carried over",
            sorted(report.bits),
            f"if they should have these, set them in {folder}",
        ),
        (
            "attributes_left",
            f"extended attributes of files of {view.place} are not saved",
            sorted(report.attributes),
            "",
        ),
    ):
        if names:
            notes.append(Note(code, f"{cause}: {_named(names)}", step, folder=folder, names=_some(names)))
    if report.saved and not whole:
        notes.append(incomplete(view, sorted(report.saved), f"{_UNUSUAL}, and may have been writing them"))
    elif report.incomplete:
        step = "close them before a run ends"
        notes.append(incomplete(view, sorted(report.incomplete), "code still has them open for writing", step))
    failed = [(f"{folder} on this machine cannot be written: {why}", names) for why, names in report.failed.items()]
    for why, names in (*failed, *report.unready.items()):
        step = "the session has ended, and this is lost" if last else "it is tried again after the next run"
        notes.append(not_saved(view, names, why, step))
    for why, names in report.refused.items():
        notes.append(not_saved(view, names, f"{why}, where nothing is ever written", "use another name or folder"))
    return notes


def not_shown(view: View, why: str, *, empty: bool) -> Note:
    """The copy is not as the folder is now, or is still empty."""
    if empty:
        code, cause = "view_empty", f"{view.place} is empty, and not a copy of {view.folder.path}: {why}"
    else:
        code, cause = "view_stale", f"{view.place} is not as {view.folder.path} is now: {why}"
    return Note(code, cause, view.folder.problem.step if view.folder.problem else Step.COPY_FILES, place=view.place)


def held(view: View, names: Sequence[str]) -> Note:
    """Files that code has open were not brought up to date."""
    cause = f"code still sees the older version of files of {view.place} that it has open: {_named(names)}"
    return Note("view_held", cause, "close them, and run again", place=view.place, names=_some(names))


def left_over(view: View, names: Sequence[str]) -> Note:
    """A killed server left unfinished changes."""
    cause = f"left in {view.folder.path} by a server that was ended while it saved files: {_named(names)}"
    step = "each is another version of a file there; compare them, and delete these"
    return Note("files_left_over", cause, step, folder=view.folder.path, names=_some(names))


def special(view: View, names: Sequence[str]) -> Note:
    """What code made is no regular file."""
    cause = (
        f"never saved from {view.place}, since they are not regular files, or have names that are not UTF-8, too long "
        f"or too deep: {_named([*topmost(names)])}"
    )
    return Note("special_files", cause, "write plain files", place=view.place, names=_some(names))


def hidden(view: View, names: Sequence[str]) -> Note:
    """What code made is hidden."""
    cause = f"never saved from {view.place}, since their names begin with a dot: {_named(names)}"
    return Note("hidden_files", cause, "give them other names", place=view.place, names=_some(names))


def not_seen(view: View, names: Sequence[str], why: str, step: str) -> Note:
    """Code does not see some files, or not as they are now."""
    cause = f"files of {view.folder.path} that are not as there in {view.place}, since {why}: {_named(names)}"
    return Note("files_not_shown", cause, step, place=view.place, names=_some(names))


def incomplete(view: View, names: Sequence[str], why: str, step: str = "check them") -> Note:
    """Files were saved that may not be whole."""
    cause = f"files in {view.folder.path} may be incomplete, since {why}: {_named(names)}"
    return Note("results_incomplete", cause, step, folder=view.folder.path, names=_some(names))


def open_databases(view: View, names: Sequence[str], *, last: bool) -> Note:
    """Databases wait until code has closed them."""
    cause = f"databases of {view.place} are not saved, since code has not closed them in SQLite: {_named(names)}"
    step = "close them with close() before the run ends" if last else "close them with close() in another run"
    return Note("databases_open", cause, step, place=view.place, names=_some(names))


def held_back(view: View, number: int, most: int, *, last: bool) -> Note:
    """More files changed than are saved after one run."""
    cause = f"changed files of {view.place} that are not saved: {number}; at most {most} are saved per run"
    step = (
        "the session has ended, and they are lost" if last else "they are saved when another run of this session ends"
    )
    return Note("results_held_back", cause, step, place=view.place, number=number)


def lost(views: Sequence[View]) -> Note:
    """The sandbox is gone with all changes."""
    places = _named([view.place for view in views])
    cause = f"what the run changed in {places} is lost; the folders on this machine are as they were"
    return Note("results_lost", cause, "run it again", places=tuple(view.place for view in views))


def not_saved(view: View, names: Sequence[str], why: str, step: str) -> Note:
    """Some changes could not be saved, and why."""
    cause = f"{_named(names)} of {view.place} {'was' if len(names) == 1 else 'were'} not saved: {why}"
    return Note("result_not_saved", cause, step, place=view.place, names=_some(names))


def _named(names: Sequence[str]) -> str:
    return one_line(listed(names, _NAMES_SHOWN))


def _some(names: Collection[str]) -> tuple[str, ...]:
    return tuple(one_line(name) for name in [*names][:_NAMES_KEPT])
