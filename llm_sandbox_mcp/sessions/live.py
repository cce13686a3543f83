"""All live sessions: which exist, how many are allowed, and when they expire."""

from collections.abc import Sequence

import anyio
from anyio.abc import TaskGroup

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
from .session import Session, unknown


class LiveSessions:
    """All live sessions of one server; sessions that are unused for too long are closed."""

    def __init__(self, pool: Pool, limits: SessionLimits, tasks: TaskGroup) -> None:
        self._pool = pool
        self._limits = limits
        self._starts = RateLimit(limits.starts_per_second)
        self._live: dict[str, Session] = {}
        self.ids = Ids()
        self._overtime = Overtime(tasks)
        tasks.start_soon(self._expire)
        self._changed = anyio.Event()

    def open(self, language: str, policy: Policy, owner: Principal) -> Session:
        """Opens a session for a first use in that language, in a sandbox with that policy.

        If the limit is reached, an idle session is closed to make room; `longest_idle` chooses it.

        Raises `CapacityReached` if no session can make room, or if too many sandboxes were started just now.
        """
        oldest = None
        room = self._pool.room
        if len(self._live) >= min(self._limits.max, room.sandboxes):
            oldest = longest_idle([*self._live.values()])
            if oldest is None:
                busy = all(session.busy for session in self._live.values())
                raise _full(self._limits.max, room, "busy" if busy else "busy, or were used more than once")
        session = Session(self.ids.new(), owner, self._pool, policy, language, self._starts, self._overtime)
        if oldest is not None:
            self.close(oldest.id)
        self._live[session.id] = session
        self._changed.set()
        return session

    def get(self, session_id: str) -> Session:
        """The live session of that id, or `UnknownSession`."""
        session = self._live.get(session_id)
        if session is None:
            idle = format_duration(self._limits.idle_timeout)
            raise unknown(session_id, self.ids.fate(session_id, f"it was closed, or expired after {idle} without use"))
        return session

    def close(self, session_id: str) -> None:
        """Closes a session: stops its run, and destroys its sandbox in the background."""
        session = self.get(session_id)
        del self._live[session_id]
        session.closed = True
        session.stop()
        session.drop("it was closed")

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._live

    def infos(self) -> tuple[SessionInfo, ...]:
        """All live sessions, oldest first."""
        return tuple(session.info(self._limits.idle_timeout) for session in self._live.values())

    def close_all(self) -> None:
        """Closes every session, when the server ends."""
        for session_id in list(self._live):
            self.close(session_id)

    async def _expire(self) -> None:
        """One timer for all sessions: sleeps until the first could expire."""
        while True:
            now = anyio.current_time()
            for session in list(self._live.values()):
                if not session.busy and session.used_at + self._limits.idle_timeout <= now:
                    self.close(session.id)
            deadlines = [
                (now if session.busy else session.used_at) + self._limits.idle_timeout
                for session in self._live.values()
            ]
            self._changed = anyio.Event()
            with anyio.CancelScope(deadline=min(deadlines, default=float("inf"))):
                await self._changed.wait()


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
