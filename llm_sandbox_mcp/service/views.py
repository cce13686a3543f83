"""The operator's folders in a session: before a run, what changed in them gets to the code; after it, the other way."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from ..backends import folder_copies
from ..backends.base import Sandbox
from ..backends.listing import FOLDER, Entry, Tree
from ..errors import SandboxLost, Unavailable
from ..escaping import one_line
from ..files.merging import NEVER, Incoming, Pair, incoming, moved_folders, outgoing, parents, topmost
from ..files.saving import Report, Saving, move_folders
from ..files.trees import Packed, in_git, pack
from ..files.watching import WatchedFolders
from ..messages import Note, Step, listed
from ..open_folders import View
from ..units import format_size

_SHARE = 2
"""The copies have at most one part in so many of the bytes and files that a folder can have: the rest is for what code
writes there."""
_FILES = 20_000
"""The most files and folders of one copy, so that a list of them can be read after each run; and the most files that
are saved after one run."""
_CHUNK = 1 << 18
"""Bytes that are sent into a sandbox at once."""
_HEADERS = 1 << 13
"""Bytes of an archive for each file beside its content."""
_DELETABLE = "only the operator can let code delete and move files there, with :rwd instead of :rw"
_NAMES_SHOWN = 10
_NAMES_KEPT = 1000
"""How many names a note has for programs."""


@dataclass(slots=True)
class _Copy:
    """The copy of one folder in one sandbox."""

    base: dict[str, Pair] = field(default_factory=dict)
    unseen: dict[str, Entry] = field(default_factory=dict)
    """Files that could not be read."""
    told: dict[str, Entry] = field(default_factory=dict)
    """What code made and what is never saved, as a note has said."""
    hidden: Collection[str] = ()
    """The same for hidden files and folders."""
    folders: Mapping[str, int] = field(default_factory=dict)
    """The inodes of its folders when it was last as the folder was."""
    listed: int = 0
    """When the copy was listed and no change of the code's was left to be saved; 0 if some are. In nanoseconds."""
    inside: Tree | None = None
    """What was in the copy then."""
    mapped: frozenset[str] = frozenset()
    """Files that code could change through its memory when they were saved last."""
    made: bool = False
    """Whether its place in the sandbox exists."""
    running: bool = False
    """Whether a run began of which nothing has been saved."""
    seen: Tree | None = None
    """What was below the folder when nothing of it was left to be copied."""
    problem: str = ""
    """Why it is not as the folder is now; empty if it is. A note has said so."""


class Views:
    """The views of all sessions."""

    def __init__(self, views: Sequence[View], folders: WatchedFolders) -> None:
        self._views = views
        self._folders = folders
        self._copies: WeakKeyDictionary[Sandbox, dict[View, _Copy]] = WeakKeyDictionary()

    async def show(self, sandbox: Sandbox) -> list[Note]:
        """Brings the copies in a sandbox up to date with their folders; returns notes about what code does not see."""
        notes: list[Note] = []
        if any(copy.running for copy in self._copies.get(sandbox, {}).values()):  # that run was cancelled
            notes += await self.save(sandbox, whole=False, last=False)
        left = sandbox.policy.disk // _SHARE
        most = min(_FILES, sandbox.policy.files // _SHARE)
        for view in self._views:
            if view in sandbox.mounted:
                continue
            copy = self._copies.setdefault(sandbox, {}).setdefault(view, _Copy())
            problem = ""
            tree: Tree | None = None if copy.made else {}
            try:
                tree = await anyio.to_thread.run_sync(
                    partial(self._folders.look, view.folder.path, files=most, size=left)
                )
            except OSError as error:
                problem = f"it cannot be read: {error.strerror}"
            except OverflowError:
                problem = f"it has more than the {format_size(left)} or {most} files that can be copied"
            left_over = self._folders.left_over(view.folder.path) if view.folder.writable else ()
            if left_over and not copy.made:
                notes.append(_left_over(view, left_over))
            if tree is not None:
                left -= sum(entry.stamp.size for entry in tree.values())
                try:
                    problem = await self._refresh(sandbox, view, copy, tree, notes) or problem
                except (SandboxLost, Unavailable) as error:
                    problem = error.cause
            if problem and problem != copy.problem:
                notes.append(_not_shown(view, copy, problem))
            copy.problem = problem
            copy.running = copy.made and view.folder.writable
        return notes

    async def _refresh(self, sandbox: Sandbox, view: View, copy: _Copy, tree: Tree, notes: list[Note]) -> str:
        """Brings one copy up to date; returns why that is not possible."""
        if tree is copy.seen:
            return ""
        plan = await anyio.to_thread.run_sync(incoming, copy.base, tree, None, copy.unseen, copy.told)
        if copy.made and not plan.copied and not plan.removed:
            copy.seen = tree
            return ""
        if copy.made and view.folder.writable:
            found = await folder_copies.list_tree(sandbox, view.place, copy.listed)
            inside = found.tree if found else copy.inside
            plan = await anyio.to_thread.run_sync(incoming, copy.base, tree, inside, copy.unseen, copy.told)
            await _leave_open(sandbox, view, copy, plan, notes)
        protected = "" if view.folder.writable else "all"
        if not protected and any(map(in_git, (*plan.copied, *plan.removed))):
            protected = "git"
        if plan.removed:
            await folder_copies.remove(sandbox, view.place, plan.removed, protected=protected)
        _leave_out_large(sandbox, view, copy, plan, tree, notes)
        packed = Packed()
        archive = _archive(view, plan, packed)
        seconds = folder_copies.seconds_for(len(plan.copied))
        try:
            why = await folder_copies.unpack(sandbox, view.place, archive, protected=protected, seconds=seconds)
            copy.made = True
            found = await folder_copies.list_tree(sandbox, view.place)
        except BaseException:
            # A part of a file must not look as if code had written it.
            with anyio.CancelScope(shield=True), suppress(SandboxLost, Unavailable):
                await folder_copies.remove(sandbox, view.place, plan.copied, protected=protected)
            for name in plan.copied:
                copy.base.pop(name, None)
            raise
        if closed := packed.closed - {*filter(in_git, packed.closed)}:
            why_not = "the server may not read them"
            notes.append(_not_seen(view, sorted(closed), why_not, "give the server's user the right to read them"))
        inside = found.tree if found else {}
        bad = await anyio.to_thread.run_sync(_take_note, copy, plan, tree, packed, inside, why)
        if bad:
            await folder_copies.remove(sandbox, view.place, bad, protected=protected)
        # Processes of the code may have changed something meanwhile.
        settled = not bad and not await anyio.to_thread.run_sync(outgoing, copy.base, inside, copy.told)
        copy.listed, copy.inside = (found.time, inside) if found and settled else (0, None)
        if found:
            known = {name: inode for name, inode in copy.folders.items() if name in copy.base}
            copy.folders = {**known, **found.folders}
        if why and (await sandbox.fullness(thorough=True)).disk:
            return f"the disk limit of {format_size(sandbox.policy.disk)} is reached"
        return why

    async def save(self, sandbox: Sandbox | None, *, whole: bool, last: bool) -> list[Note]:
        """Writes what a run changed into the folders that are open for writing, each file whole or not at all.

        After a run that was stopped, files can be incomplete: if not `whole`, they replace none of the person's, and
        nothing is deleted. `last` says that no other run follows that could save what is not saved now. Returns notes
        about what was saved, and what was not.
        """
        notes: list[Note] = []
        if sandbox is None:
            writable = [view for view in self._views if view.folder.writable]
            return [_lost(writable)] if writable else []
        for view, copy in self._copies.get(sandbox, {}).items():
            if view.folder.writable and copy.made:
                try:
                    await self._save(sandbox, view, copy, notes, whole=whole, last=last)
                except (SandboxLost, Unavailable) as error:
                    notes.append(_not_saved(view, ["what the run wrote"], error.cause, "" if last else error.step))
                copy.running = False
        return notes

    async def _save(
        self, sandbox: Sandbox, view: View, copy: _Copy, notes: list[Note], *, whole: bool, last: bool
    ) -> None:
        found = await folder_copies.list_tree(sandbox, view.place, 0 if copy.mapped else copy.listed)
        if found is None:
            return
        inside, mapped = found.tree, found.mapped | copy.mapped
        if hidden := sorted(name for name in found.hidden if name not in copy.base and name not in copy.hidden):
            notes.append(_hidden(view, hidden))
        copy.hidden = found.hidden
        if inside == copy.inside and not mapped:
            copy.listed = found.time
            return
        copy.listed, copy.inside, copy.seen = 0, None, None
        moved: Mapping[str, str] = {}
        if whole and view.folder.deletes and (moves := moved_folders(copy.folders, found.folders)):
            moved = await anyio.to_thread.run_sync(move_folders, view.folder, copy.base, moves)
        plan = await anyio.to_thread.run_sync(
            partial(
                outgoing,
                copy.base,
                inside,
                copy.told,
                mapped=mapped,
                folders=copy.folders,
                hidden={*found.hidden.values()},
            )
        )
        later = plan.limit(_FILES)
        if plan.special:
            copy.told.update((name, inside[name]) for name in plan.special)
            notes.append(_special(view, plan.special))
        saving = Saving(view.folder, copy.base, inside, plan, sandbox.policy.largest_file, whole=whole)
        saving.report.moved.update((f"{old}/", f"{new}/") for old, new in moved.items())
        try:
            await anyio.to_thread.run_sync(saving.begin)
            if plan.files:
                most = sandbox.policy.disk + _HEADERS * len(plan.files)
                await folder_copies.send_out(sandbox, view.place, plan.files, saving.feed, most)
            await anyio.to_thread.run_sync(saving.finish)
        finally:
            saving.close()
            for names in saving.report.refused.values():
                copy.told.update((name, inside[name]) for name in names if name in inside)
            with anyio.CancelScope(shield=True):
                notes += await anyio.to_thread.run_sync(partial(_notes_of, view, saving.report, whole=whole, last=last))
        if later:
            notes.append(_held_back(view, later, last=last))
        if plan.databases:
            notes.append(_open_databases(view, plan.databases, last=last))
        copy.mapped = found.mapped
        if saving.complete and not later and not plan.databases:
            copy.listed, copy.inside, copy.folders = found.time, inside, found.folders
            await self._look_again(sandbox, view, copy, saving.report, notes)

    async def _look_again(self, sandbox: Sandbox, view: View, copy: _Copy, report: Report, notes: list[Note]) -> None:
        """Finds files that processes of the code were still writing while they were saved."""
        if not report.saved or (now := await folder_copies.list_tree(sandbox, view.place, copy.listed)) is None:
            return
        if torn := [name for name in report.saved if now.tree.get(name) != (copy.inside or {}).get(name)]:
            notes.append(_incomplete(view, torn, "code was still writing them while they were saved"))
            copy.listed, copy.inside = 0, None


def _leave_out_large(sandbox: Sandbox, view: View, copy: _Copy, plan: Incoming, tree: Tree, notes: list[Note]) -> None:
    """Takes out of a plan the files that no process in the sandbox may write."""
    largest = sandbox.policy.largest_file
    if large := {name for name in plan.copied if tree[name].stamp.size > largest}:
        plan.copied[:] = [name for name in plan.copied if name not in large]
        copy.unseen.update((name, tree[name]) for name in large)
        why = f"they are larger than {format_size(largest)}"
        notes.append(_not_seen(view, sorted(large), why, "only the operator can raise limits.file_size"))


async def _leave_open(sandbox: Sandbox, view: View, copy: _Copy, plan: Incoming, notes: list[Note]) -> None:
    """Takes out of a plan the files that code has open: what it writes into a replaced file would be lost."""
    known = [name for name in (*plan.copied, *plan.removed) if name in copy.base]
    held = {*known} & {*(await folder_copies.held_files(sandbox, view.place)), *copy.mapped} if known else ()
    if held:
        plan.copied[:] = [name for name in plan.copied if name not in held]
        plan.removed[:] = [name for name in plan.removed if name not in held]
        cause = f"code still sees the older version of files of {view.place} that it has open: {_named(sorted(held))}"
        notes.append(Note("view_held", cause, "close them, and run again", place=view.place, names=_some(held)))


def _take_note(copy: _Copy, plan: Incoming, tree: Tree, packed: Packed, inside: Tree, why: str) -> list[str]:
    """Takes note of what both sides have in common after a refresh; returns files that are not whole in the copy.

    What was not copied stays as it is known, and is tried again before the next run, unless it may not be read.
    """
    bad: list[str] = []
    for name in plan.removed:
        if name not in inside:
            copy.base.pop(name, None)
    for name in plan.copied:
        copy.unseen.pop(name, None)
        now, before = inside.get(name), copy.base.get(name)
        if name in packed.closed:
            copy.unseen[name] = tree[name]
        if name not in packed.files or (before is not None and now == before.inside != FOLDER):
            continue
        entry, size = packed.files[name]
        copy.base.pop(name, None)
        if in_git(name):
            if not why:
                copy.base[name] = Pair(entry, entry)
        elif now is not None and _is_copy(now, entry, size):
            copy.base[name] = Pair(entry, now)
        elif not why:
            copy.base[name] = Pair(entry, NEVER)  # a process has changed it since: that counts as the code's change
        elif now is not None and now.kind == "f":
            bad.append(name)
    return bad


def _is_copy(now: Entry, of: Entry, size: int) -> bool:
    """Whether a file is as it was unpacked; some versions of tar keep whole seconds only."""
    if now.kind != of.kind or now.kind != "f":
        return now.kind == of.kind == "d"
    seconds = of.stamp.mtime // 10**9 * 10**9
    return now.stamp.size == size and now.stamp.mtime in (of.stamp.mtime, seconds)


async def _archive(view: View, plan: Incoming, packed: Packed) -> AsyncIterator[bytes]:
    parts = pack(Path(view.folder.path), plan.copied, packed, writable=view.folder.writable)

    def some() -> bytes:
        """Many small parts at once: each visit to a worker thread takes longer than a small file."""
        taken = bytearray()
        while len(taken) < _CHUNK and (part := next(parts, None)):
            taken += part
        return bytes(taken)

    while chunk := await anyio.to_thread.run_sync(some):
        yield chunk


def _notes_of(view: View, report: Report, *, whole: bool, last: bool) -> list[Note]:
    folder, notes = view.folder.path, []
    filled = {above for name in (*report.saved, *report.moved.values(), *report.folders) for above in parents(name)}
    saved = sorted((*report.saved, *(f"{name}/" for name in report.folders if name not in filled)))
    kept = sorted(topmost(report.kept))
    beside = {name: other for name, other in sorted(report.beside.items()) if name not in report.missing}
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
            f"still in {folder}, although code deleted or moved them",
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
            + ("since not all else could be saved" if whole else "since the run was stopped"),
            sorted(topmost(report.waiting)) if view.folder.deletes else [],
            "" if last else "that is done after another run of this session",
        ),
        (
            "permissions_kept",
            f"files of {view.place} whose permissions are not carried over",
            report.bits,
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
        notes.append(_incomplete(view, sorted(report.saved), "the run was stopped, and may have been writing them"))
    for why, names in report.failed.items():
        step = "the session has ended, and they are lost" if last else "it is tried again after the next run"
        notes.append(_not_saved(view, names, f"{folder} on this machine cannot be written: {why}", step))
    for why, names in report.refused.items():
        notes.append(_not_saved(view, names, f"{why}, where nothing is ever written", "use another name or folder"))
    return notes


def _not_shown(view: View, copy: _Copy, why: str) -> Note:
    what = "not as" if copy.base else "empty, and not a copy of"
    cause = f"{view.place} is {what} {view.folder.path}{' is now' if copy.base else ''}: {why}"
    return Note("view_stale" if copy.base else "view_empty", cause, Step.COPY_FILES, place=view.place)


def _left_over(view: View, names: Sequence[str]) -> Note:
    cause = f"left in {view.folder.path} by a server that was ended while it saved files: {_named(names)}"
    step = "each is another version of a file there; compare them, and delete these"
    return Note("files_left_over", cause, step, folder=view.folder.path, names=_some(names))


def _special(view: View, names: Sequence[str]) -> Note:
    cause = (
        f"never saved from {view.place}, since they are not regular files, or have names that are not UTF-8, too long "
        f"or too deep: {_named(names)}"
    )
    return Note("special_files", cause, "write plain files", place=view.place, names=_some(names))


def _hidden(view: View, names: Sequence[str]) -> Note:
    cause = f"never saved from {view.place}, since their names begin with a dot: {_named(names)}"
    return Note("hidden_files", cause, "give them other names", place=view.place, names=_some(names))


def _not_seen(view: View, names: Sequence[str], why: str, step: str) -> Note:
    cause = f"files of {view.folder.path} that are not as there in {view.place}, since {why}: {_named(names)}"
    return Note("files_not_shown", cause, step, place=view.place, names=_some(names))


def _incomplete(view: View, names: Sequence[str], why: str) -> Note:
    cause = f"files in {view.folder.path} may be incomplete, since {why}: {_named(names)}"
    return Note("results_incomplete", cause, "check them", folder=view.folder.path, names=_some(names))


def _open_databases(view: View, names: Sequence[str], *, last: bool) -> Note:
    cause = f"databases of {view.place} are not saved, since code has not closed them in SQLite: {_named(names)}"
    step = "close them with close() before the run ends" if last else "close them with close() in another run"
    return Note("databases_open", cause, step, place=view.place, names=_some(names))


def _held_back(view: View, number: int, *, last: bool) -> Note:
    cause = f"changed files of {view.place} that are not saved: {number}; at most {_FILES} are saved per run"
    step = (
        "the session has ended, and they are lost" if last else "they are saved when another run of this session ends"
    )
    return Note("results_held_back", cause, step, place=view.place, number=number)


def _lost(views: Sequence[View]) -> Note:
    places = _named([view.place for view in views])
    cause = f"what the run changed in {places} is lost; the folders on this machine are as they were"
    return Note("results_lost", cause, "run it again", places=tuple(view.place for view in views))


def _not_saved(view: View, names: Sequence[str], why: str, step: str) -> Note:
    cause = f"{_named(names)} of {view.place} {'was' if len(names) == 1 else 'were'} not saved: {why}"
    return Note("result_not_saved", cause, step, place=view.place, names=_some(names))


def _named(names: Sequence[str]) -> str:
    return one_line(listed(names, _NAMES_SHOWN))


def _some(names: Collection[str]) -> tuple[str, ...]:
    return tuple(one_line(name) for name in [*names][:_NAMES_KEPT])
