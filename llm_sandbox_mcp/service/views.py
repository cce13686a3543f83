"""The operator's folders in a session: before a run, what changed in them gets to the code; after it, the other way."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from ..backends import folder_copies
from ..backends.base import Sandbox
from ..backends.listing import Entry, Tree
from ..errors import SandboxLost, Unavailable
from ..escaping import one_line
from ..files.merging import NEVER, Incoming, Pair, incoming, outgoing, parents, topmost
from ..files.saving import Report, Saving
from ..files.trees import in_git, pack
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
    """Special files of the code's that a note has named."""
    listed: int = 0
    """When the copy was listed and no change of the code's was left to be saved; 0 if some are. In nanoseconds."""
    inside: Tree | None = None
    """What was in the copy then."""
    mapped: frozenset[str] = frozenset()
    """Files that code could change through its memory when they were saved last."""
    made: bool = False
    """Whether its place in the sandbox exists."""
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
        packed: dict[str, tuple[Entry, int]] = {}
        archive = _archive(view, plan, packed)
        try:
            why = await folder_copies.unpack(sandbox, view.place, archive, protected=protected)
            copy.made = True
            found = await folder_copies.list_tree(sandbox, view.place)
        except BaseException:
            # A part of a file must not look as if code had written it.
            with anyio.CancelScope(shield=True), suppress(SandboxLost, Unavailable):
                await folder_copies.remove(sandbox, view.place, plan.copied, protected=protected)
            for name in plan.copied:
                copy.base.pop(name, None)
            raise
        inside = found.tree if found else {}
        bad = await anyio.to_thread.run_sync(_take_note, copy, plan, tree, packed, inside, why)
        if bad:
            await folder_copies.remove(sandbox, view.place, bad, protected=protected)
        # Processes of the code may have changed something meanwhile.
        settled = not bad and not await anyio.to_thread.run_sync(outgoing, copy.base, inside, copy.told)
        copy.listed, copy.inside = (found.time, inside) if found and settled else (0, None)
        if why and (await sandbox.fullness(thorough=True)).disk:
            return f"the disk limit of {format_size(sandbox.policy.disk)} is reached"
        return why

    async def save(self, sandbox: Sandbox, *, whole: bool) -> list[Note]:
        """Writes what a run changed into the folders that are open for writing, each file whole or not at all.

        After a run that was stopped, files can be incomplete: if not `whole`, they are saved after another run. Returns
        notes about what was saved, and what was not.
        """
        notes: list[Note] = []
        for view, copy in self._copies.get(sandbox, {}).items():
            if view.folder.writable and copy.made:
                try:
                    await self._save(sandbox, view, copy, notes, whole=whole)
                except (SandboxLost, Unavailable) as error:
                    notes.append(_not_saved(view, ["what the run wrote"], error.cause, error.step))
        return notes

    async def _save(self, sandbox: Sandbox, view: View, copy: _Copy, notes: list[Note], *, whole: bool) -> None:
        found = await folder_copies.list_tree(sandbox, view.place, 0 if copy.mapped else copy.listed)
        if found is None:
            return
        inside, mapped = found.tree, found.mapped | copy.mapped
        if inside == copy.inside and not mapped:
            copy.listed = found.time
            return
        copy.listed, copy.inside, copy.seen = 0, None, None
        plan = await anyio.to_thread.run_sync(outgoing, copy.base, inside, copy.told, mapped)
        if plan and not whole:
            notes.append(_held_back(view, len(plan.files) + len(plan.gone), "the run was stopped"))
            return
        if later := plan.limit(_FILES):
            notes.append(_held_back(view, later, f"at most {_FILES} are saved per run"))
        if plan.special:
            copy.told.update((name, inside[name]) for name in plan.special)
            notes.append(_special(view, plan.special))
        saving = Saving(view.folder, copy.base, inside, plan, sandbox.policy.largest_file)
        try:
            await anyio.to_thread.run_sync(saving.begin)
            if plan.files:
                most = sandbox.policy.disk + _HEADERS * len(plan.files)
                await folder_copies.send_out(sandbox, view.place, plan.files, saving.feed, most)
            await anyio.to_thread.run_sync(saving.finish)
        finally:
            saving.close()
            with anyio.CancelScope(shield=True):
                notes += await anyio.to_thread.run_sync(_notes_of, view, saving.report)
        copy.mapped = found.mapped
        if saving.complete and not later:
            copy.listed, copy.inside = found.time, inside


async def _leave_open(sandbox: Sandbox, view: View, copy: _Copy, plan: Incoming, notes: list[Note]) -> None:
    """Takes out of a plan the files that code has open: what it writes into a replaced file would be lost."""
    known = [name for name in (*plan.copied, *plan.removed) if name in copy.base]
    held = {*known} & {*(await folder_copies.held_files(sandbox, view.place)), *copy.mapped} if known else ()
    if held:
        plan.copied[:] = [name for name in plan.copied if name not in held]
        plan.removed[:] = [name for name in plan.removed if name not in held]
        cause = f"code still sees the older version of files of {view.place} that it has open: {_named(sorted(held))}"
        notes.append(Note("view_held", cause, "close them, and run again", place=view.place, names=_some(held)))


def _take_note(
    copy: _Copy, plan: Incoming, tree: Tree, packed: dict[str, tuple[Entry, int]], inside: Tree, why: str
) -> list[str]:
    """Takes note of what both sides have in common after a refresh; returns files that are not whole in the copy."""
    bad: list[str] = []
    for name in plan.removed:
        if name not in inside:
            copy.base.pop(name, None)
    for name in plan.copied:
        copy.base.pop(name, None)
        copy.unseen.pop(name, None)
        now = inside.get(name)
        if name not in packed:
            copy.unseen[name] = tree[name]
            continue
        entry, size = packed[name]
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
    return now.kind == of.kind == "d" or (
        now.kind == of.kind and now.stamp.size == size and now.stamp.mtime // 10**9 == of.stamp.mtime // 10**9
    )


async def _archive(view: View, plan: Incoming, packed: dict[str, tuple[Entry, int]]) -> AsyncIterator[bytes]:
    def note(path: str, entry: Entry, size: int) -> None:
        packed[path] = entry, size

    parts = pack(Path(view.folder.path), plan.copied, note, writable=view.folder.writable)

    def some() -> bytes:
        """Many small parts at once: each visit to a worker thread takes longer than a small file."""
        taken = bytearray()
        while len(taken) < _CHUNK and (part := next(parts, None)):
            taken += part
        return bytes(taken)

    while chunk := await anyio.to_thread.run_sync(some):
        yield chunk


def _notes_of(view: View, report: Report) -> list[Note]:
    folder, notes = view.folder.path, []
    filled = {above for name in (*report.saved, *report.moved.values(), *report.folders) for above in parents(name)}
    saved = sorted((*report.saved, *(f"{name}/" for name in report.folders if name not in filled)))
    for code, verb, names in (
        ("results_saved", "saved", saved),
        ("results_moved", "moved", [f"{old} to {new}" for old, new in sorted(report.moved.items())]),
        ("results_deleted", "deleted", sorted(topmost(report.deleted))),
    ):
        if names:
            cause = f"{verb} in {folder}: {_named(names)}"
            notes.append(Note(code, cause, folder=folder, names=_some(names)))
    if report.beside:
        pairs = [f"{name} (the code's is {other})" for name, other in sorted(report.beside.items())]
        cause = f"{folder} has its own version of these files, and both are kept: {_named(pairs)}"
        step = "compare both, and keep what is right"
        notes.append(Note("results_beside", cause, step, folder=folder, names=_some(report.beside.values())))
    if kept := sorted(topmost(report.kept)):
        cause = f"still in {folder}, although code deleted or moved them: {_named(kept)}"
        step = "only the operator can let code delete and move files there, with :rwd instead of :rw"
        notes.append(Note("results_kept", cause, step, folder=folder, names=_some(kept)))
    if report.changed:
        names = sorted(report.changed)
        cause = f"still in {folder}, although code deleted them, since they have changed there: {_named(names)}"
        notes.append(Note("results_kept", cause, folder=folder, names=_some(names)))
    if report.bits:
        cause = f"files of {view.place} whose permissions are not carried over: {_named(sorted(report.bits))}"
        notes.append(Note("permissions_kept", cause, place=view.place, names=_some(report.bits)))
    if report.attributes:
        cause = f"extended attributes of files of {view.place} are not saved: {_named(sorted(report.attributes))}"
        notes.append(Note("attributes_left", cause, place=view.place, names=_some(report.attributes)))
    for why, names in report.failed.items():
        step = "it is tried again after the next run"
        notes.append(_not_saved(view, names, f"{folder} on this machine cannot be written: {why}", step))
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


def _held_back(view: View, number: int, why: str) -> Note:
    cause = f"changed files of {view.place} that are not saved yet: {number}; {why}"
    step = "they are saved when another run of this session ends"
    return Note("results_held_back", cause, step, place=view.place, number=number)


def _not_saved(view: View, names: Sequence[str], why: str, step: str) -> Note:
    cause = f"{_named(names)} of {view.place} {'was' if len(names) == 1 else 'were'} not saved: {why}"
    return Note("result_not_saved", cause, step, place=view.place, names=_some(names))


def _named(names: Sequence[str]) -> str:
    return one_line(listed(names, _NAMES_SHOWN))


def _some(names: Collection[str]) -> tuple[str, ...]:
    return tuple(one_line(name) for name in [*names][:_NAMES_KEPT])
