"""Sessions that outlive what holds them: they are put aside when they are idle, or the server ends, and their next use
opens them again."""

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from weakref import WeakSet

import anyio

from ..aio.tasks import open_tasks
from ..backends.base import Sandbox
from ..base.errors import BadState, SandboxError, StoreFailed, UnknownSession, UnknownState
from ..base.messages import Note, Step
from ..base.principal import ANONYMOUS, Principal
from ..base.results import OnProgress, Opened, described_contents
from ..base.text import one_line
from ..base.units import format_age, format_duration
from ..sessions.session import Session
from ..state.manifest import Manifest
from .checkpoints import Checkpoints
from .contents import Contents, notes_of
from .parts import Parts

_AT_ONCE = 4
"""Sessions that are saved at once: more would take longer for each, and at the end of the server the first count."""
_CHECKPOINTS = 16
"""The same for those that go on; what a session does to its own takes places of these only."""

_log = logging.getLogger(__name__)


class Keeping:
    """Puts sessions aside, and opens them again, if the profile says so."""

    def __init__(self, parts: Parts, contents: Contents) -> None:
        limits = parts.profile.sessions
        self._on = limits.keep
        self._seconds = limits.save_timeout
        self._live = parts.live
        self._kept = parts.kept
        self._saved = parts.saved
        self._store = parts.store
        self._contents = contents
        self._tasks = parts.tasks
        bit_by_bit = limits.checkpoint == "run"
        self._checkpoints = Checkpoints(parts.kept, contents, parts.live.__contains__) if bit_by_bit else None
        self._due: set[str] = set()
        """The sessions that are saved as soon as nobody uses them."""
        self._saving: set[str] = set()
        """The sessions that are saved now, after a run."""
        self._at_once = anyio.CapacityLimiter(_AT_ONCE)
        self._checkpoints_at_once = anyio.CapacityLimiter(_CHECKPOINTS)
        self._failing = WeakSet[Session]()
        """The sessions whose last checkpoint failed."""
        self._checked = False
        self._ended = False
        self._going_on = set[anyio.CancelScope]()
        """What is finished although nobody waits for it any more, but not after the time at the end of the server."""
        if self._on:
            self._live.put_aside = self._put_aside
        if self._checkpoints is not None:
            self._live.after_use = self._save_soon

    def check(self) -> None:
        """Lets the log say, once and in the background, why no session can be put aside, if that is so."""
        if self._on and not self._checked:
            self._checked = True
            self._tasks.start_soon(self._check)

    async def _check(self) -> None:
        try:
            await self._saved.check()  # in the same place
        except StoreFailed as error:
            _log.warning("sessions.keep has no effect: %s", error)

    async def wake(self, caller: Principal, session_id: str) -> None:
        """Makes a session live if it was put aside, also by another server; its next use opens it.

        Does nothing for any other id. Raises `BadState` if the session cannot be opened.
        """
        if not self._on or caller == ANONYMOUS or session_id in self._live or not self._live.ids.valid(session_id):
            return
        try:
            async with self._kept.reading(caller, session_id) as (reader, _):
                manifest = reader.manifest
            language, policy = self._contents.frame(manifest)
        except UnknownState:
            return
        except BadState as error:
            raise _unusable(error) from error
        if session_id not in self._live:  # nobody else was quicker
            session = self._live.open(language, policy, caller, session_id, self._open)
            session.runs = manifest.runs

    async def bring_back(self, caller: Principal, session_id: str) -> None:
        """Makes a session live as `wake` does, and opens it if its artifacts are not here."""
        await self.wake(caller, session_id)
        if session_id in self._live and not self._store.of_session(session_id):
            session = self._live.get(session_id)
            if session.put_aside is not None and not session.has_sandbox:
                async with session.exclusive():
                    await session.sandbox()

    async def discard(self, caller: Principal, session_id: str) -> bool:
        """Removes what was put aside of a session that is not live; returns whether there was anything."""
        if not self._on or caller == ANONYMOUS or session_id in self._live or not self._live.ids.valid(session_id):
            return False
        removed = await self._kept.remove(caller, session_id)
        if removed:
            self._live.note_end(session_id, "it was closed")
        return removed

    async def forget(self, session: Session) -> None:
        """Removes what was put aside of a session that its owner ends, or empties."""
        session.put_aside = None
        if self._keeps(session):
            await self._kept.remove(session.owner, session.id)

    async def use(self, caller: Principal) -> str:
        """How much of a caller's sessions is put aside, against the bounds, in words."""
        return await self._kept.use(caller)

    def saving(self, session_id: str) -> bool:
        """Whether a session is being saved after a run, or will be."""
        return session_id in self._due or session_id in self._saving

    async def number(self, caller: Principal) -> int:
        """How many sessions of a caller are put aside, and not live here."""
        if not self._on or caller == ANONYMOUS:
            return 0
        return sum(session_id not in self._live for session_id in await self._kept.ids(caller))

    async def end(self) -> None:
        """Saves all sessions before the server ends, in the time that the profile allows; no new work begins.

        Those that were used last come first. What runs is interrupted after half of the time.
        """
        if not self._on or self._ended:
            return
        self._ended, sessions = True, self._live.end()
        waiting, saved = set(sessions), set[Session]()
        with anyio.move_on_after(self._seconds, shield=True) as scope:
            async with open_tasks() as timer:
                timer.start_soon(self._interrupt, waiting)
                async with open_tasks() as tasks:
                    for session in sessions:
                        tasks.start_soon(self._save_last, session, waiting, saved)
                timer.cancel_scope.cancel()
        for other in self._going_on:
            other.cancel()
        if scope.cancelled_caught:
            left, seconds = len(sessions) - len(saved), format_duration(self._seconds)
            _log.warning(
                "%d of %d sessions were not saved within %s, sessions.save_timeout", left, len(sessions), seconds
            )

    def _keeps(self, session: Session) -> bool:
        return self._on and session.owner != ANONYMOUS

    async def _interrupt(self, waiting: Iterable[Session]) -> None:
        """After half of the time, stops what runs in sessions that wait to be saved, but nothing that saves them."""
        await anyio.sleep(self._seconds / 2)
        for session in waiting:
            session.stop()

    async def _save_last(self, session: Session, waiting: set[Session], saved: set[Session]) -> None:
        busy = session.busy
        try:
            async with session.exclusive(last=True):
                waiting.discard(session)
                session.interrupted = busy and session.broken_off
                async with self._at_once:
                    await self._save(session)
                saved.add(session)
        except UnknownSession:  # it was closed meanwhile
            pass
        except SandboxError as error:
            _log.warning("a session could not be saved: %s", error)

    async def _put_aside(self, session: Session) -> str:
        if not self._keeps(session):
            self._live.close(session.id)
            return ""
        try:
            async with self._at_once:
                if session.busy or session.closed:  # whoever waits for its turn here would keep others from being saved
                    return ""
                async with session.exclusive():
                    if await self._save(session, live=True) and session.alone and not session.closed:
                        await self._kept.end(session.owner, session.id)
                        if not session.alone:  # whoever came meanwhile goes on after that state
                            await self._go_on(session)
                    if session.alone and not session.closed:
                        self._live.close(session.id)
        except SandboxError as error:
            return str(error)
        return ""

    def _save_soon(self, session: Session) -> None:
        if session.id not in self._due and self._keeps(session):
            self._due.add(session.id)
            self._tasks.start_soon(self._checkpoint, session)

    async def _checkpoint(self, session: Session) -> None:
        """Saves a session that goes on; it is broken off if somebody uses the session, and tried again after that."""
        try:
            with anyio.CancelScope() as scope:
                async with session.spare(scope):
                    self._due.discard(session.id)  # what is done from here on is saved the next time
                    self._saving.add(session.id)
                    async with self._checkpoints_at_once:
                        await self._save(session, live=True)
                        self._failing.discard(session)
        except UnknownSession:  # it was closed meanwhile
            pass
        except SandboxError as error:
            # Its owner can have ended it, and the sandbox with it; and code that makes it fail could fill the log.
            if not session.closed and session not in self._failing:
                self._failing.add(session)
                _log.warning("a session could not be saved after a run: %s", error)
                session.news.tell(Note("not_saved", f"the session could not be saved after an earlier run: {error}"))
        except Exception:
            _log.exception("a session could not be saved after a run")
        finally:
            self._due.discard(session.id)
            self._saving.discard(session.id)

    async def _save(self, session: Session, *, live: bool = False) -> bool:
        """Saves a session, and returns whether it has anything that can be saved; `live`: it goes on."""
        if not self._keeps(session):
            return False
        sandbox = await session.sandbox() if session.has_sandbox else None
        if sandbox is None or not session.has(sandbox):
            if session.put_aside is None:  # code has ended what was saved
                await self._kept.remove(session.owner, session.id)
            return False
        if self._checkpoints is not None:
            await self._checkpoints.save(session, sandbox, live=live)
        else:
            async with self._kept.writing(session.owner, session.id, self._live.__contains__, live=live) as writer:
                await self._contents.write(session, sandbox, writer, session.id, tmp=True)
        if session.closed:  # its owner ended it meanwhile
            await self._kept.remove(session.owner, session.id)
        elif live:
            session.put_aside = self._open
        return True

    async def _open(
        self, session: Session, sandbox: Sandbox, loss: str, on_progress: OnProgress | None
    ) -> Sequence[Note]:
        """Opens a session in its new sandbox; returns what its caller must know."""
        began = anyio.current_time()
        try:
            async with self._kept.reading(session.owner, session.id) as (reader, ended):
                opened = await self._contents.read(session, sandbox, reader, on_progress)
        except (BadState, UnknownState) as error:
            raise _unusable(error) from error
        with anyio.CancelScope(shield=True) as scope:  # nothing is lost of what is open
            self._going_on.add(scope)
            try:
                await self._go_on(session)
            finally:
                self._going_on.discard(scope)
        return _notes(opened, reader.manifest, loss, ended, anyio.current_time() - began)

    async def _go_on(self, session: Session) -> None:
        """Takes note that a session goes on after its state, before anybody can change it."""
        await self._kept.go_on(session.owner, session.id)
        session.put_aside = self._open


def _notes(opened: Opened, manifest: Manifest, loss: str, ended: bool, seconds: float) -> list[Note]:
    """What a caller must know of a session that was opened again; `loss` says what ended its last sandbox, if so."""
    age = max(0.0, (datetime.now(UTC) - manifest.created).total_seconds())
    what = described_contents(opened.variables, opened.files)
    if ended and not loss:
        cause = f"the session was put aside {format_age(age)} ago, and is open again as it was then, with {what}"
    else:
        why = loss or "its server was killed, or still has it"
        cause = (
            f"{one_line(why)}; the session is as it was {format_age(age)} ago, after run {manifest.runs}, with {what}"
        )
        cause += f"; what came after that{'' if loss else ', if anything,'} is lost"
    again = Note(
        "opened_again",
        f"{cause} ({seconds * 1000:.0f} ms)",
        age=age,
        seconds=seconds,
        runs=manifest.runs,
        lost=not ended or bool(loss),
        variables=dict(opened.variables),
        files=opened.files,
    )
    notes = [*(Note("earlier", text) for text in manifest.untold), again]
    if manifest.interrupted and ended:  # otherwise it was told already
        notes.append(
            Note("interrupted", "code ran when the server ended: it was interrupted, and its result is cancelled")
        )
    return [*notes, *notes_of(opened.missing), *opened.notes]


def _unusable(error: SandboxError) -> BadState:
    return BadState(f"the session cannot be opened again: {error.cause}", Step.OPEN_SESSION)
