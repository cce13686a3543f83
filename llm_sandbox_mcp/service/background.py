"""Runs that go on without their caller, who can come back for new output, for the result, or to cancel."""

import logging
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Unpack

import anyio
from anyio.abc import TaskGroup

from ..base.errors import CapacityReached, SandboxError, UnknownRun, quoted
from ..base.messages import Note
from ..base.results import Execution, OnOutput, OnProgress, Output, StreamName
from ..profile.sections import SessionLimits
from ..sessions.live import LiveSessions
from .executing import Asked, Executing, Prepared
from .output import NewOutput

_OWN = 4
"""Runs of each session that may go on or wait for their turn, however many others there are."""
_SHARED = 128
"""Runs beyond these, of all sessions together: callers that leave all runs behind must not fill the memory."""
_OF_SESSION = 32
"""Runs of one session at most that go on or wait."""
_ENDED = 64
"""Ended runs at most whose results are kept; more if there can be many sessions, so that each has some."""
_REMEMBERED = 4096
"""Ids of runs whose results made room for others."""

Caller = tuple[str, ...]
"""Who calls, as far as that is known: first what a caller can have few of, such as its address, then connections."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listener:
    """A caller that waits for a run."""

    on_output: OnOutput | None = None
    on_progress: OnProgress | None = None


_NOBODY = Listener()


class Following:
    """What a run prints: passed on to whoever listens, and kept until it is read."""

    def __init__(self, shown: int) -> None:
        self._new: Mapping[StreamName, NewOutput] = {"stdout": NewOutput(shown), "stderr": NewOutput(shown)}
        self._listeners: list[Listener] = []

    async def output(self, stream: StreamName, text: str) -> None:
        """Takes output of the code."""
        self._new[stream].add(text)
        for listener in [*self._listeners]:
            if listener.on_output is not None:
                await listener.on_output(stream, text)

    async def line(self, text: str) -> None:
        """Takes one line about the server's own work."""
        for listener in [*self._listeners]:
            if listener.on_progress is not None:
                await listener.on_progress(text)

    @contextmanager
    def passing_on(self, listener: Listener) -> Iterator[None]:
        """Passes everything on to the listener until the block ends."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def read(self) -> tuple[Output, Output]:
        """The standard output and standard error that were not read yet."""
        return self._new["stdout"].take(), self._new["stderr"].take()


class BackgroundRun:
    """One run that belongs to the server. It ends by itself, at its timeout, or when it is cancelled."""

    def __init__(self, run_id: str, caller: Caller, prepared: Prepared, following: Following) -> None:
        self.id = run_id
        self.session = prepared.session
        self.given = False
        """Whether a caller has its result, or its error."""
        self.created = datetime.now(UTC)
        self.started_at = anyio.current_time()
        self.ended_at = 0.0
        self._caller = caller
        self._prepared = prepared
        self._following = following
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._execution: Execution | None = None
        self._error: Exception | None = None

    @property
    def session_id(self) -> str:
        """The id of its session."""
        return self.session.id

    @property
    def begun(self) -> bool:
        """Whether its code was given to the interpreter; before, it waits for its session or for libraries."""
        return self._prepared.begun

    @property
    def known(self) -> bool:
        """Whether its caller knows its session: it named one, or was told the id of the new one."""
        return not self._prepared.new or self.session.told

    @property
    def ended(self) -> bool:
        """Whether its result, or its error, is known."""
        return self._ended.is_set()

    @property
    def owner(self) -> tuple[str, ...]:
        """Who it belongs to: its caller, and its session; those that ended are one, as anybody can have many."""
        return (*self._caller, "" if self.session.closed else self.session_id)

    @property
    def cancelled(self) -> bool:
        """Whether it ended because it was cancelled."""
        return self._execution is not None and self._execution.status == "cancelled"

    @property
    def duration(self) -> float:
        """Seconds since it was started, or that it took."""
        return (self.ended_at if self.ended else anyio.current_time()) - self.started_at

    async def wait(self, seconds: float = math.inf, listener: Listener = _NOBODY) -> Execution | None:
        """Waits for the result; None if it is not known after so many seconds. Raises the error of a run that failed.

        The run goes on if the caller is cancelled.
        """
        with self._following.passing_on(listener), anyio.move_on_after(seconds):
            await self._ended.wait()
        if self._error is not None:
            self.given = True
            raise self._error.with_traceback(None)  # otherwise it would grow each time
        if self._execution is None:
            self.session.told = True  # the caller learns of the session with this answer
        return self._execution

    def read(self) -> tuple[Output, Output]:
        """The standard output and standard error that appeared since the last call: the end of it, if it is long."""
        return self._following.read()

    def taken(self) -> None:
        """Takes note that a caller has its result."""
        self.given = True
        self._prepared.taken()

    def cancel(self) -> None:
        """Interrupts its code, or takes back a run whose code has not begun; its result will say so."""
        if not (self.begun and self.session.stop()):
            self._scope.cancel()

    async def serve(self, executing: Executing) -> None:
        """Does the run."""
        try:
            with self._scope:
                self._execution = await executing.run(self._prepared, self._following.line)
        except Exception as error:
            self._error = error
            if not isinstance(error, SandboxError):
                _log.exception("a run failed")
        finally:
            self.ended_at = anyio.current_time()
            # Results are kept for long, and megabytes can have been asked and reported.
            del self._prepared.request, self._prepared.report
            if self._execution is None and self._error is None:
                self._execution = self._cancelled()
            self._ended.set()

    def _cancelled(self) -> Execution:
        return Execution(
            status="cancelled",
            exit_code=130,
            stdout=Output(""),
            stderr=Output(""),
            result=None,
            duration=0.0,
            session_id=self.session_id,
            session_state="ended" if self.session.closed else "kept",
            notes=(Note("cancelled", "it was cancelled before its code had begun"),),
        )


class Runs:
    """The runs of all callers that asked for one by its id."""

    def __init__(
        self, executing: Executing, live: LiveSessions, tasks: TaskGroup, shown: int, limits: SessionLimits
    ) -> None:
        """`shown` is how much of a stream a result shows."""
        self._executing = executing
        self._live = live
        self._tasks = tasks
        self._shown = shown
        self.kept_for = limits.idle_timeout
        """Seconds for which the results of ended runs are kept."""
        self._kept = max(_ENDED, 2 * limits.max)
        self._runs: dict[str, BackgroundRun] = {}
        self._gave_way: deque[str] = deque(maxlen=_REMEMBERED)

    async def start(self, code: str, caller: Caller = (), **asked: Unpack[Asked]) -> BackgroundRun:
        """Starts a run, and raises the same request errors as `Executing.prepare`.

        Raises `CapacityReached` if too many runs of its session, or of all sessions, have not ended.
        """
        following = Following(self._shown)
        prepared = await self._executing.prepare(code, on_output=following.output, **asked)
        # Not before this: while others are prepared, this one is not counted. No new session is refused.
        self._check_room(prepared.session.id)
        run = BackgroundRun(self._live.ids.new(), caller, prepared, following)
        self._runs[run.id] = run
        self._prune()
        self._tasks.start_soon(run.serve, self._executing)
        return run

    def get(self, run_id: str) -> BackgroundRun:
        """The run with that id; raises `UnknownRun`."""
        self._prune(asked=run_id)
        if (run := self._runs.get(run_id)) is None:
            if run_id in self._gave_way:
                why = "its result made room for those of other runs; run again, and read results soon"
            else:
                why = self._live.ids.fate(run_id, "its result was given, or expired")
            raise UnknownRun(f"run {quoted(run_id, 40)} is not known: {why}")
        return run

    def of_session(self, session_id: str) -> tuple[BackgroundRun, ...]:
        """The runs of a session that go on, and those whose results are kept, oldest first."""
        self._prune()
        return tuple(run for run in self._runs.values() if run.session_id == session_id)

    def leave(self, run: BackgroundRun) -> None:
        """What a caller does that is gone: the run goes on if it can be found; otherwise it ends with its session."""
        if run.known:
            return
        run.cancel()
        if not run.session.closed:
            self._live.close(run.session_id)

    def forget(self, run: BackgroundRun) -> None:
        """Drops a run whose result its caller has."""
        self._runs.pop(run.id, None)

    def _check_room(self, session_id: str) -> None:
        unfinished = Counter(run.session_id for run in self._runs.values() if not run.ended)
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
        for run in [run for run in self._runs.values() if run.ended]:
            if run.ended_at < oldest:
                self.forget(run)
            elif run.id != asked:
                kept.append(run)
        while len(kept) > self._kept:
            run = _least_missed(kept)
            kept.remove(run)
            self.forget(run)
            if not run.given:
                self._gave_way.append(run.id)


def _least_missed(runs: Sequence[BackgroundRun]) -> BackgroundRun:
    """The run whose result makes room for others: of those that were given, if any, the oldest of whoever has most.

    Of those who have as many, it is one whose sessions ended, if any, then the one that came last: who comes again and
    again under new names replaces only its own results.
    """
    found = [run for run in runs if run.given] or runs
    for known in range(1, 1 + max(len(run.owner) for run in found)):
        of_owner: dict[tuple[str, ...], list[BackgroundRun]] = defaultdict(list)
        for run in found:
            of_owner[run.owner[:known]].append(run)
        found = max(reversed(of_owner.values()), key=lambda own: (len(own), all(run.session.closed for run in own)))
    return found[0]
