"""All live sessions: which exist, how many are allowed, and when they expire."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from ..backends.base import Layer
from ..backends.room import Room
from ..base.errors import CapacityReached
from ..base.policy import Policy
from ..base.principal import Principal
from ..base.results import SessionInfo
from ..base.units import format_duration
from ..pool.pool import Pool
from ..profile.sections import SessionLimits
from .ids import Ids
from .overtime import Overtime
from .rate_limit import RateLimit
from .session import Reopen, Session
from .turns import ending, unknown

_LEAVING = 8
"""Sessions at once that are put aside to make room for others."""
_TRIES = 3
"""How often an idle session is put aside in vain before it is closed all the same."""
_REMEMBERED = 1000
"""Sessions that could not be put aside, whose reason is known."""

_log = logging.getLogger(__name__)


class LiveSessions:
    """All live sessions of one server; sessions that are unused for too long are closed."""

    def __init__(self, pool: Pool, limits: SessionLimits, tasks: TaskGroup) -> None:
        self._pool = pool
        self._limits = limits
        self._starts = RateLimit(limits.starts_per_second)
        self._live: dict[str, Session] = {}
        self.ids = Ids()
        self._overtime = Overtime(tasks)
        self._tasks = tasks
        tasks.start_soon(self._expire)
        self._changed = anyio.Event()
        self.put_aside: Callable[[Session], Awaitable[str]] | None = None
        """Saves the state of an idle session and closes it, unless somebody uses it meanwhile; returns why that
        failed, if it did."""
        self.after_use: Callable[[Session], None] | None = None
        """Called when somebody has used a session."""
        self._leaving: dict[Session, bool] = {}
        """The sessions that are put aside now, and whether to make room."""
        self._failed: dict[str, int] = {}
        """How often a session was put aside in vain."""
        self._lost: dict[str, str] = {}
        """Why sessions ended."""
        self._ending = False

    def open(
        self,
        language: str,
        policy: Policy,
        owner: Principal,
        session_id: str = "",
        put_aside: Reopen | None = None,
        *,
        empty: bool = False,
        layer: Layer | None = None,
    ) -> Session:
        """Opens a session for a first use in that language, in a sandbox with that policy.

        If the limit is reached, an idle session makes room: it is put aside or closed; `longest_idle` chooses it.
        `session_id` and `put_aside` are those of a session that was put aside itself; with `empty`, its owner opens a
        saved session in it, with the files of a layer if one is given.

        Raises `CapacityReached` if no session can make room, or if too many sandboxes were started just now.
        """
        if self._ending:
            raise ending()
        oldest = None
        room = self._pool.room
        making_room = sum(self._leaving.values())
        if len(self._live) - making_room >= min(self._limits.max, room.sandboxes):
            staying = [session for session in self._live.values() if session not in self._leaving]
            oldest = longest_idle(staying) if making_room < _LEAVING else None
            if oldest is None:
                busy = all(session.busy for session in self._live.values())
                raise _full(self._limits.max, room, "busy" if busy else "busy, or were used more than once")
        named = session_id or self.ids.new()
        session = Session(
            named,
            owner,
            self._pool,
            policy,
            language,
            self._starts,
            self._overtime,
            put_aside,
            undoes_kills=self._limits.undo_kills,
            empty=empty,
            layer=layer,
        )
        session.after_use = self.after_use
        if oldest is not None:
            self._let_go(oldest, for_room=True)
        self._live[session.id] = session
        self._changed.set()
        return session

    def check_room(self, number: int) -> None:
        """Raises `CapacityReached` if so many sessions cannot be opened now, even if idle ones make room."""
        busy, (sandboxes, step) = sum(session.busy for session in self._live.values()), self._pool.most
        most = min(self._limits.max, sandboxes)
        if number > most - busy:
            cause = f"{number} sessions cannot be opened: {most} can be open at once, and {busy} of them are busy"
            raise CapacityReached(cause, step if sandboxes < self._limits.max else "raise sessions.max in the profile")

    def get(self, session_id: str) -> Session:
        """The live session of that id, or `UnknownSession`."""
        session = self._live.get(session_id)
        if session is None:
            expired = f"it was closed, or expired after {format_duration(self._limits.idle_timeout)} without use"
            raise unknown(session_id, self._lost.get(session_id) or self.ids.fate(session_id, expired))
        return session

    def close(self, session_id: str) -> None:
        """Closes a session: stops its run, and destroys its sandbox in the background."""
        session = self.get(session_id)
        del self._live[session_id]
        if not self.ids.made(session_id):
            self.note_end(session_id, "it was closed, or expired")
        self._failed.pop(session_id, None)
        session.closed = True
        session.stop()
        session.drop("it was closed")

    def note_end(self, session_id: str, why: str) -> None:
        """Takes note of why a session is not live, which its id does not tell if another server has made it."""
        self._lost[session_id] = why
        while len(self._lost) > _REMEMBERED:
            del self._lost[next(iter(self._lost))]

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._live

    def infos(self) -> tuple[SessionInfo, ...]:
        """All live sessions, oldest first."""
        return tuple(session.info(self._limits.idle_timeout) for session in self._live.values())

    def end(self) -> list[Session]:
        """Opens no more sessions, and returns all, the one that was used last first: each has one use left."""
        self._ending = True
        for session in self._live.values():
            session.ending = True
        return sorted(self._live.values(), key=lambda session: (session.busy, session.used_at), reverse=True)

    def close_all(self) -> None:
        """Closes every session, when the server ends."""
        for session_id in list(self._live):
            self.close(session_id)

    async def _expire(self) -> None:
        """One timer for all sessions: sleeps until the first could expire."""
        while not self._ending:
            now = anyio.current_time()
            for session in list(self._live.values()):
                idle = not session.busy and session not in self._leaving
                if idle and session.used_at + self._limits.idle_timeout <= now:
                    self._let_go(session)
            deadlines = [
                (now if session.busy else session.used_at) + self._limits.idle_timeout
                for session in self._live.values()
                if session not in self._leaving
            ]
            self._changed = anyio.Event()
            with anyio.CancelScope(deadline=min(deadlines, default=float("inf"))):
                await self._changed.wait()

    def _let_go(self, session: Session, *, for_room: bool = False) -> None:
        """Closes an idle session; where sessions are put aside, as soon as that is done."""
        if self.put_aside is None:
            self.close(session.id)
            return
        self._leaving[session] = for_room
        self._tasks.start_soon(self._leave, self.put_aside, session)

    async def _leave(self, put_aside: Callable[[Session], Awaitable[str]], session: Session) -> None:
        name, problem = session.id, "an unexpected error"
        try:
            problem = await put_aside(session)
        except Exception:
            _log.exception("a session could not be put aside")
        finally:
            for_room = self._leaving.pop(session)
            self._changed.set()
        if not problem:
            self._failed.pop(name, None)
        if not problem or session.closed:
            return
        _log.warning("a session could not be put aside: %s", problem)
        failed = self._failed[name] = self._failed.get(name, 0) + 1
        if session.busy or (failed < _TRIES and not for_room):
            return  # it is tried again when it has been idle for as long once more
        self.close(name)
        self.note_end(name, f"it was idle, and could not be saved: {problem}")


def longest_idle(sessions: Sequence[Session]) -> Session | None:
    """The session that makes room: the one that is idle longest, or None if every candidate is in use.

    If at least a quarter of all sessions were used only once, only these are candidates: then a flood of new sessions
    replaces its own sessions, not those that other callers use again.
    """
    once = [session for session in sessions if session.uses < 2]
    found = once if 4 * len(once) >= len(sessions) else sessions
    return min((one for one in found if not one.busy), key=lambda session: session.used_at, default=None)


def _full(most: int, room: Room, how: str) -> CapacityReached:
    if most <= room.sandboxes:
        return CapacityReached(f"all {most} sessions are {how}", "wait for one, or raise sessions.max in the profile")
    return CapacityReached(
        f"the server's {room.of} are enough for {room.sandboxes} sandboxes, and all sessions are {how}",
        f"wait for one, or make room for more on the server: {room.step}",
    )
