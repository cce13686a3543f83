"""The operator's folders in a session: copies of those that are not mounted, and results that are saved in them."""

from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial

import anyio.to_thread

from ..backends import copying
from ..backends.archive import Member
from ..backends.base import Sandbox
from ..backends.listing import Files
from ..errors import BadHostPath, BadPath, SandboxLost, Unavailable
from ..escaping import one_line
from ..files import hostfiles
from ..files.artifacts import is_inner
from ..files.trees import list_tree, pack
from ..messages import Note, Step, listed
from ..open_folders import View
from ..sections import ArtifactLimits
from ..sessions.session import Session
from ..units import format_size

_SHARE = 2
"""The copies have at most one part in so many of the bytes and files that a folder can have: the rest is for what code
writes there."""
_FILES = 4000
"""The most files of one copy: after a run, a list of them must fit into what is kept of a command's output."""
_NAMES_SHOWN = 10


class Views:
    """The views of all sessions."""

    def __init__(self, views: Sequence[View], limits: ArtifactLimits) -> None:
        self._views = views
        self._limits = limits

    async def show(self, session: Session, sandbox: Sandbox) -> list[Note]:
        """Copies the folders that are not mounted into a sandbox that has no copies yet.

        Returns a note for each folder that cannot be copied; its view is empty.
        """
        if session.views is not None or not self._views:
            return []
        notes: list[Note] = []
        shown: dict[View, Files] = {}
        left = sandbox.policy.disk // _SHARE
        most = min(_FILES, sandbox.policy.files // _SHARE)
        for view in self._views:
            if view in sandbox.mounted:
                continue
            paths: list[str] = []
            try:
                paths = await anyio.to_thread.run_sync(partial(list_tree, view.folder.path, files=most, size=left))
            except OSError as error:
                notes.append(_not_shown(view, f"it cannot be read: {error.strerror}"))
            except OverflowError:
                bounds = f"{format_size(left)} or {most} files"
                notes.append(_not_shown(view, f"it has more than the {bounds} that can be copied"))
            try:
                left = max(0, left - await _copy(view, paths, sandbox))
            except (BadPath, Unavailable) as error:
                notes.append(_not_shown(view, error.cause))
            if view.folder.writable:
                shown[view] = await copying.list_files(sandbox, view.place)
        session.views = shown
        return notes

    async def save(self, session: Session, sandbox: Sandbox, *, whole: bool) -> list[Note]:
        """Writes what a run changed into the folders that are open for writing, each file whole or not at all.

        After a run that was stopped, files can be incomplete: if not `whole`, they are saved after another run. Returns
        notes about what was saved, and what was not.
        """
        notes: list[Note] = []
        for view, before in [*session.views.items()] if session.views else ():
            try:
                after = await copying.list_files(sandbox, view.place)
                changed = [name for name, stamp in after.items() if before.get(name) != stamp and is_inner(name)]
                saved = await self._save(view, sandbox, changed, notes) if whole else ()
            except (SandboxLost, Unavailable) as error:
                notes.append(_not_saved(view, "what the run wrote", error.cause, error.step))
                continue
            if later := 0 if whole else len(changed):
                notes.append(_held_back(view, later, "the run was stopped"))
            # Files that are not saved count as changed until they are.
            known = {name: stamp for name, stamp in after.items() if name in saved or before.get(name) == stamp}
            session.views = {**(session.views or {}), view: known}
        return notes

    async def _save(self, view: View, sandbox: Sandbox, changed: Sequence[str], notes: list[Note]) -> Collection[str]:
        """Saves changed files, as many as a run may leave; returns their names."""
        wanted, most = set(changed[: self._limits.files]), self._limits.file_size
        saved: list[str] = []

        async def take(member: Member) -> None:
            if member.name not in wanted:
                return
            wanted.discard(member.name)
            if member.size > most:
                why = f"it has {format_size(member.size)}; the limit is {format_size(most)}"
                notes.append(_not_saved(view, member.name, why, "write a smaller file, or several files"))
                return
            path = f"{view.folder.path}/{member.name}"
            try:
                async with hostfiles.open_target(path, [view.folder], make=True) as target:
                    await target.write(bytes(member.content))
                saved.append(member.name)
            except BadHostPath as error:
                notes.append(_not_saved(view, member.name, error.cause, error.step))

        if wanted:
            await copying.copy_out(sandbox, view.place, changed[: self._limits.files], most, take)
        if saved:
            notes.append(_saved(view, sorted(saved)))
        if later := max(0, len(changed) - self._limits.files):
            notes.append(_held_back(view, later, f"at most {self._limits.files} are saved per run"))
        return saved


async def _copy(view: View, paths: Sequence[str], sandbox: Sandbox) -> int:
    """Copies these files of a folder of this machine into its place; returns how many bytes were sent."""
    sent = 0

    async def archive() -> AsyncIterator[bytes]:
        nonlocal sent
        parts = pack(view.folder.path, paths)
        while part := await anyio.to_thread.run_sync(next, parts, None):
            sent += len(part)
            yield part

    await copying.unpack(sandbox, view.place, archive(), writable=view.folder.writable)
    return sent


def _not_shown(view: View, why: str) -> Note:
    cause = f"{view.place} is empty, and not a copy of {view.folder.path}: {why}"
    return Note("view_empty", cause, Step.COPY_FILES, place=view.place)


def _saved(view: View, names: Sequence[str]) -> Note:
    cause = f"saved in {view.folder.path}: {one_line(listed(names, _NAMES_SHOWN))}"
    return Note("results_saved", cause, folder=view.folder.path, names=tuple(names))


def _held_back(view: View, number: int, why: str) -> Note:
    cause = f"changed files of {view.place} that are not saved yet: {number}; {why}"
    step = "they are saved when another run of this session ends"
    return Note("results_held_back", cause, step, place=view.place, number=number)


def _not_saved(view: View, name: str, why: str, step: str) -> Note:
    cause = f"{one_line(name)} of {view.place} was not saved: {why}"
    return Note("result_not_saved", cause, step, place=view.place, name=name)
