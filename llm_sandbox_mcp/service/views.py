"""The operator's folders in a session: before a run, what changed in them gets to the code; after it, the other way."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from ..backends import copying, folder_copies
from ..backends.base import Sandbox
from ..backends.listing import FOLDER, Entry, Tree
from ..base.errors import SandboxLost, Unavailable
from ..base.messages import Note
from ..base.open_folders import View
from ..base.policy import Policy
from ..base.units import format_size
from ..files.merging import NEVER, Incoming, Pair, incoming, moved_folders, outgoing, parents
from ..files.renaming import rename_folders
from ..files.report import Report
from ..files.saving import Saving
from ..files.trees import Packed, in_git, pack
from ..files.watching import WatchedFolders
from . import view_notes

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


@dataclass(slots=True)
class _Copy:
    """The copy of one folder in one sandbox."""

    base: dict[str, Pair] = field(default_factory=dict)
    unseen: dict[str, Entry] = field(default_factory=dict)
    """Files that could not be read."""
    told: dict[str, Entry] = field(default_factory=dict)
    """What code made and what is never saved, as a note has said."""
    hidden: Collection[str] = ()
    """Hidden files and folders that a note has named."""
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
    stopped: bool = False
    """Whether the last run whose changes were saved did not end as usual."""
    doubtful: bool = False
    """Whether some of its files are not saved yet, which may be incomplete."""
    seen: Tree | None = None
    """What was below the folder when nothing of it was left to be copied."""
    problem: str = ""
    """Why it is not as the folder is now; empty if it is. A note has said so."""


class Views:
    """The views of all sessions."""

    def __init__(self, views: Sequence[View], folders: WatchedFolders) -> None:
        self._views = views
        self._folders = folders
        self.writable = any(view.folder.writable for view in views)
        """Whether code can change any of the folders."""
        self._copies: WeakKeyDictionary[Sandbox, dict[View, _Copy]] = WeakKeyDictionary()

    async def show(self, sandbox: Sandbox) -> list[Note]:
        """Brings the copies in a sandbox up to date with their folders; returns notes about what code does not see."""
        notes: list[Note] = []
        if any(copy.running or copy.doubtful for copy in self._copies.get(sandbox, {}).values()):  # or it was cancelled
            notes += await self.save(sandbox, whole=False, last=False)
        left = sandbox.policy.disk // _SHARE
        for view in self._views:
            if view in sandbox.mounted:
                continue
            copy = self._copies.setdefault(sandbox, {}).setdefault(view, _Copy())
            tree, problem = await self._look(view, sandbox.policy, left)
            if tree is None and not copy.made:
                tree = {}
            left_over = self._folders.left_over(view.folder.path) if view.folder.writable else ()
            if left_over and not copy.made:
                notes.append(view_notes.left_over(view, left_over))
            if tree is not None:
                left -= sum(entry.stamp.size for entry in tree.values())
                try:
                    problem = await self._refresh(sandbox, view, copy, tree, notes) or problem
                except (SandboxLost, Unavailable) as error:
                    problem = str(error)
            if problem and problem != copy.problem:
                notes.append(view_notes.not_shown(view, problem, empty=not copy.base))
            copy.problem = problem
            copy.running = copy.made and view.folder.writable
        return notes

    async def problem(self, view: View, policy: Policy) -> str:
        """Why a folder by itself cannot be copied into a sandbox; empty if it can."""
        return (await self._look(view, policy, policy.disk // _SHARE))[1]

    async def _look(self, view: View, policy: Policy, left: int) -> tuple[Tree | None, str]:
        """What is in a folder; or None, and why it cannot be copied. At most `left` bytes of it can be."""
        most = min(_FILES, policy.files // _SHARE)
        look = partial(self._folders.look, view.folder.path, files=most, size=left)
        try:
            return await anyio.to_thread.run_sync(look), ""
        except OSError as error:
            return None, f"it cannot be read: {error.strerror}"
        except OverflowError:
            return None, f"it has more than the {format_size(left)} or {most} files that can be copied"

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
        archive = partial(_archive, view, plan, packed)
        try:
            why = await folder_copies.unpack(sandbox, view.place, archive, protected=protected, files=len(plan.copied))
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
            step = "give the server's user the right to read them"
            notes.append(view_notes.not_seen(view, sorted(closed), "the server may not read them", step))
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
        if why and await copying.is_full(sandbox):
            return f"the disk limit of {format_size(sandbox.policy.disk)} is reached"
        return why

    async def save(self, sandbox: Sandbox | None, *, whole: bool, last: bool) -> list[Note]:
        """Writes what a run changed into the folders that are open for writing, each file whole or not at all.

        After a run that did not end as usual, files can be incomplete: if not `whole`, they replace none of the
        person's, and nothing is deleted. `last` says that no other run follows that could save what is not saved now.
        Returns notes about what was saved, and what was not.
        """
        notes: list[Note] = []
        if sandbox is None:
            writable = [view for view in self._views if view.folder.writable]
            return [view_notes.lost(writable)] if writable else []
        for view, copy in self._copies.get(sandbox, {}).items():
            if view.folder.writable and copy.made:
                notes += await self._save_all(sandbox, view, copy, whole=whole, last=last)
        return notes

    async def save_rest(self, sandbox: Sandbox) -> list[Note]:
        """Saves what has changed since the last run, before the sandbox ends."""
        notes: list[Note] = []
        for view, copy in self._copies.get(sandbox, {}).items():
            if view.folder.writable and copy.made:
                whole = not (copy.running or copy.stopped)
                notes += await self._save_all(sandbox, view, copy, whole=whole, last=True)
        return notes

    async def _save_all(self, sandbox: Sandbox, view: View, copy: _Copy, *, whole: bool, last: bool) -> list[Note]:
        notes: list[Note] = []
        whole, settled = whole and not copy.doubtful, False
        try:
            settled = await self._save(sandbox, view, copy, notes, whole=whole, last=last)
        except (SandboxLost, Unavailable) as error:
            step = "" if last else error.step
            notes.append(view_notes.not_saved(view, ["what the run wrote"], error.cause, step))
        copy.running, copy.stopped, copy.doubtful = False, not whole, not whole and not settled
        return notes

    async def _save(
        self, sandbox: Sandbox, view: View, copy: _Copy, notes: list[Note], *, whole: bool, last: bool
    ) -> bool:
        """Saves the changes of one copy; returns whether no changed file is left to be saved."""
        found = await folder_copies.list_tree(sandbox, view.place, 0 if copy.mapped else copy.listed)
        if found is None:
            return True
        inside, mapped = found.tree, found.mapped | copy.mapped
        if hidden := sorted(name for name in found.hidden if name not in copy.base and name not in copy.hidden):
            notes.append(view_notes.hidden(view, hidden))
        copy.hidden = found.hidden
        if inside == copy.inside and not mapped:
            copy.listed = found.time
            return True
        copy.listed, copy.inside, copy.seen = 0, None, None
        moved: Mapping[str, str] = {}
        if whole and view.folder.deletes and (moves := moved_folders(copy.folders, found.folders)):
            moved = await anyio.to_thread.run_sync(rename_folders, view.folder, copy.base, moves)
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
            notes.append(view_notes.special(view, plan.special))
        # What is mapped too is written by the kernel, all of it.
        held = found.held - found.mapped
        largest = sandbox.policy.largest_file
        saving = Saving(view.folder, copy.base, inside, plan, largest, whole=whole, last=last, held=held)
        saving.report.moved.update((f"{old}/", f"{new}/") for old, new in moved.items())
        try:
            await anyio.to_thread.run_sync(saving.begin)
            if plan.files:
                most = sandbox.policy.disk + _HEADERS * len(plan.files)
                files = len(plan.files)
                await folder_copies.send_out(sandbox, view.place, saving.wanted, saving.feed, most, files)
            await anyio.to_thread.run_sync(saving.finish)
        finally:
            saving.close()
            for names in saving.report.refused.values():
                copy.told.update((name, inside[name]) for name in names if name in inside)
            with anyio.CancelScope(shield=True):
                made = partial(view_notes.notes_of, view, saving.report, whole=whole, last=last)
                notes += await anyio.to_thread.run_sync(made)
        if later:
            notes.append(view_notes.held_back(view, later, _FILES, last=last))
        if plan.databases:
            notes.append(view_notes.open_databases(view, plan.databases, last=last))
        copy.mapped = found.mapped
        if saving.complete and not later and not plan.databases:
            copy.listed, copy.inside, copy.folders = found.time, inside, found.folders
            await self._look_again(sandbox, view, copy, saving.report, notes)
        return not (saving.report.unsaved or later)

    async def _look_again(self, sandbox: Sandbox, view: View, copy: _Copy, report: Report, notes: list[Note]) -> None:
        """Finds files that processes of the code were still writing while they were saved."""
        if not report.saved or (now := await folder_copies.list_tree(sandbox, view.place, copy.listed)) is None:
            return
        if torn := [name for name in report.saved if now.tree.get(name) != (copy.inside or {}).get(name)]:
            notes.append(view_notes.incomplete(view, torn, "code was still writing them while they were saved"))
            copy.listed, copy.inside = 0, None


def _leave_out_large(sandbox: Sandbox, view: View, copy: _Copy, plan: Incoming, tree: Tree, notes: list[Note]) -> None:
    """Takes out of a plan the files that no process in the sandbox may write."""
    largest = sandbox.policy.largest_file
    if large := {name for name in plan.copied if tree[name].stamp.size > largest}:
        plan.copied[:] = [name for name in plan.copied if name not in large]
        copy.unseen.update((name, tree[name]) for name in large)
        why = f"they are larger than {format_size(largest)}"
        notes.append(view_notes.not_seen(view, sorted(large), why, "only the operator can raise limits.file_size"))


async def _leave_open(sandbox: Sandbox, view: View, copy: _Copy, plan: Incoming, notes: list[Note]) -> None:
    """Takes out of a plan the files that code has open: what it writes into a replaced file would be lost."""
    known = {name for name in (*plan.copied, *plan.removed) if name in copy.base}
    held = {*(await folder_copies.held_files(sandbox, view.place)), *copy.mapped} if known else set()
    if known & held:
        for names in (plan.copied, plan.removed):  # also what would make a folder of such a file
            names[:] = [name for name in names if held.isdisjoint((name, *parents(name)))]
        notes.append(view_notes.held(view, sorted(known & held)))


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
            # A process has changed it since: that counts as the code's change, though not of its permissions.
            copy.base[name] = Pair(entry, NEVER if now is None else NEVER._replace(mode=now.mode))
        elif now is not None and now.kind == "f":
            bad.append(name)
        elif now is not None and before is not None:
            copy.base[name] = before  # it could not be replaced
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
