"""The door to work: every run and every installation of all callers is checked, started and found here."""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import anyio

from ..base.errors import CapacityReached, InstallFailed, UnknownRun, quoted
from ..base.results import REPEATED
from ..sessions.session import Session
from .ask import Ask, Checked
from .parts import Parts
from .running import Running
from .sessions import Sessions
from .work import NOBODY, Listener, Work

_OWN = 4
"""Work of each session that may go on or wait for its turn without its caller, however much others have."""
_SHARED = 128
"""Work beyond these, of all sessions together: callers that leave all of it behind must not fill the memory."""
_OF_SESSION = 32
"""Work of one session at most that goes on or waits."""
_ENDED = 64
"""Results at most that are kept; more if there can be many sessions, so that each has some."""
_REMEMBERED = 4096
"""Ids of work whose results made room for others."""


class Door:
    """All work of one server."""

    def __init__(self, parts: Parts, running: Running, sessions: Sessions) -> None:
        """Work that goes on without its caller lives in the tasks of the parts."""
        self._running = running
        self._sessions = sessions
        self._live = parts.live
        self._tasks = parts.tasks
        self._shown = min(parts.profile.limits.shown, REPEATED)
        limits = parts.profile.sessions
        self.kept_for = limits.idle_timeout
        """Seconds for which results are kept."""
        self._kept = max(_ENDED, 2 * limits.max)
        self._work: dict[str, Work] = {}
        self._gave_way: deque[str] = deque(maxlen=_REMEMBERED)

    async def check(self, ask: Ask) -> Checked:
        """Raises every request error of an ask that does not depend on its session, before anything is opened."""
        return await self._running.check(ask)

    def start(self, checked: Checked) -> Work:
        """Starts work that goes on if its caller leaves.

        Raises `UnknownSession`, and `CapacityReached` if too much work of its session, or of all, has not ended.
        """
        session = self._sessions.of(checked)
        # Not before this: while others are checked, this one is not counted. No new session is refused.
        self._check_room(session.id)
        work = self._enter(checked, session, alone=True)
        self._prune()
        session.join()  # before its task has begun, another new session could close this one to make room
        self._tasks.start_soon(work.do_alone, self._running.do)
        return work

    async def attend(self, checked: Checked, listener: Listener = NOBODY) -> Work:
        """Does work in the task of its caller, who gets the result with it, and raises its errors.

        If the caller is cancelled, the code is interrupted, and the session is kept. An installation that others cancel
        raises `InstallFailed`.
        """
        work = self._enter(checked, self._sessions.of(checked), alone=False)
        try:
            with work.passing_on(listener):
                await work.do(self._running.do)
            if work.installs and work.cancelled:
                raise InstallFailed("the installation was cancelled", "install again")
            work.taken()
            return work
        finally:
            self.forget(work)

    def get(self, work_id: str) -> Work:
        """The work with that id; raises `UnknownRun`."""
        self._prune(asked=work_id)
        if (work := self._work.get(work_id)) is None:
            if work_id in self._gave_way:
                why = "its result made room for those of others; start it again, and read results soon"
            else:
                why = self._live.ids.fate(work_id, "its result was given, or expired")
            raise UnknownRun(f"run {quoted(work_id, 40)} is not known: {why}")
        return work

    def of_session(self, session_id: str) -> tuple[Work, ...]:
        """The work of a session that goes on, and that whose result is kept, oldest first."""
        self._prune()
        return tuple(work for work in self._work.values() if work.session_id == session_id)

    def leave(self, work: Work) -> None:
        """What a caller does that is gone: its work goes on if it can be found; otherwise it ends with its session."""
        if work.told:
            return
        work.cancel()
        if not work.session.closed:
            self._live.close(work.session_id)

    def forget(self, work: Work) -> None:
        """Drops work whose result its caller has."""
        self._work.pop(work.id, None)

    def _enter(self, checked: Checked, session: Session, *, alone: bool) -> Work:
        work = Work(self._live.ids.new(), checked, session, alone=alone, shown=self._shown)
        self._work[work.id] = work
        return work

    def _check_room(self, session_id: str) -> None:
        unfinished = Counter(work.session_id for work in self._work.values() if work.alone and not work.ended)
        own, shared = unfinished[session_id], sum(max(0, number - _OWN) for number in unfinished.values())
        if own >= (_OF_SESSION if shared < _SHARED else _OWN):
            raise CapacityReached(
                f"this session has {own} runs that go on or wait, the most that it may have now",
                "wait for one, or cancel one",
            )

    def _prune(self, asked: str = "") -> None:
        """Drops what is too old or too much, but for a result that its caller asks for now."""
        oldest = anyio.current_time() - self.kept_for
        kept = []
        for work in [work for work in self._work.values() if work.ended]:
            if work.ended_at < oldest:
                self.forget(work)
            elif work.id != asked:
                kept.append(work)
        while len(kept) > self._kept:
            work = _least_missed(kept)
            kept.remove(work)
            self.forget(work)
            if not work.given:
                self._gave_way.append(work.id)


def _least_missed(ended: Sequence[Work]) -> Work:
    """The work whose result makes room for others: of those that were given, if any, the oldest of whoever has most.

    Of those who have as many, it is one whose sessions ended, if any, then the one that came last: who comes again and
    again under new names replaces only its own results.
    """
    found = [work for work in ended if work.given] or ended
    for known in range(1, 1 + max(len(_owner(work)) for work in found)):
        of_owner: dict[tuple[str, ...], list[Work]] = defaultdict(list)
        for work in found:
            of_owner[_owner(work)[:known]].append(work)
        found = max(reversed(of_owner.values()), key=lambda own: (len(own), all(work.session.closed for work in own)))
    return found[0]


def _owner(work: Work) -> tuple[str, ...]:
    """Who has a result: its origin, and its session; those that ended are one, as anybody can have many."""
    return (*work.ask.origin, "" if work.session.closed else work.session_id)
