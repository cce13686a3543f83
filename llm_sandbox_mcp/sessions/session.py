"""Session ids and what they own: a lease, live kernels, and a time to expire."""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from ..backends import copying
from ..backends.base import Fullness, Sandbox, Usage, halves
from ..backends.layout import FIGURES
from ..backends.room import Room
from ..errors import CapacityReached, SandboxLost, UnknownSession, quoted
from ..messages import Step
from ..places import Places
from ..policy import Policy
from ..pool.leases import Lease
from ..pool.pool import Pool
from ..results import Library, OnOutput, SessionInfo
from ..runs.cpu_time import cpu_bound
from ..runs.execution import Outcome
from ..runs.kernel import Kernel
from ..runs.program import Program, start_kernel
from ..runs.verdict import overcrowded, succeeded
from ..sections import SessionLimits
from ..units import format_duration
from .overtime import Overtime
from .pace import Pace

_LAST_LOOK = 0.1
"""Seconds for a look at a sandbox when the time of its run, and the grace, is up."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of one run in a session."""

    outcome: Outcome
    usage: Usage
    """The limits that were hit meanwhile."""
    fullness: Fullness
    loss: str | None
    """Why it had to start without the state of earlier runs."""


class Session:
    """A client's named lease and its live kernels, one per language used. One run at a time; others wait their turn."""

    def __init__(self, pool: Pool, policy: Policy, language: str, starts: Pace, overtime: Overtime) -> None:
        starts.take()
        self.id = secrets.token_hex(16)
        self.policy = policy
        self.runs = 0
        self.uses = 0
        """How often it was asked for something, be it a run or a copy."""
        self.opened_at = self.used_at = anyio.current_time()
        self.closed = False
        self.loss: str | None = None
        """Why state was lost since the last run, until the next run says so."""
        self._pool = pool
        self._language = language
        self._starts = starts
        self._overtime = overtime
        self._deadline = 0.0
        """Until when what the last use leaves running may use the processor."""
        self._counted = True
        """Whether the start of the next sandbox is counted already: that of the first is, with its session."""
        self._lease: Lease | None = None
        self._kernels: dict[str, Kernel | Program] = {}
        self._ran: set[str] = set()
        """The languages that ran something since they were refreshed."""
        self._turn = anyio.Lock(fast_acquire=True)
        self._users = 0

    @property
    def busy(self) -> bool:
        """Whether a caller uses it or waits for it."""
        return self._users > 0

    @property
    def has_sandbox(self) -> bool:
        """Whether the next use finds the sandbox of the last one."""
        return self._lease is not None and self._lease.sandbox.alive

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Waits for this session's turn and holds it; raises `UnknownSession` when it was closed meanwhile.

        What the use leaves running may go on until its time is up, however the use ends. Where the sandbox is lost
        meanwhile, the error is what its engine tells of that.
        """
        self._users += 1
        self.uses += 1
        try:
            async with self._turn:
                if self.closed:
                    raise _unknown(self.id)
                self._deadline = anyio.current_time() + self.policy.timeout
                if self._lease is not None:
                    self._overtime.forget(self._lease.sandbox)
                try:
                    yield
                except SandboxLost as lost:
                    if self._lease is not None and (told := await self._lease.sandbox.loss()):
                        raise told from lost
                    raise
        finally:
            self._users -= 1
            self.used_at = anyio.current_time()
            if self._lease is not None and not self.busy:
                self._overtime.watch(self._lease.sandbox, self._deadline, self._end_overtime)

    async def sandbox(self, language: str = "") -> Sandbox:
        """The session's sandbox; interpreters that ended since the last run are let go.

        Where there is none, it is one for the language, or for that of the last use, with its kernel if that is warm.
        """
        self._language = language or self._language
        if self._lease is not None and not self._lease.sandbox.alive:
            lost = await self._lease.sandbox.loss()
            self.drop(halves(str(lost))[0] if lost else "its sandbox ended")
        for name, kernel in list(self._kernels.items()):
            if not kernel.running:
                self.loss = await self._let_go(name)
        if self._lease is None:
            if self.closed:  # while what uses it waited for something else: a sandbox for nobody
                raise _unknown(self.id)
            if not self._counted:
                self._starts.take()
            self._counted = False
            lease = await self._pool.acquire(self._language, self.policy)
            if self.closed:
                lease.release()
                raise _unknown(self.id)
            self._lease = lease
            if lease.kernel is not None:
                self._kernels[self._language] = lease.kernel
        return self._lease.sandbox

    async def run(
        self,
        places: Places,
        code: str,
        *,
        variables: Mapping[str, object],
        timeout: float,
        limits: Policy,
        on_output: OnOutput | None,
        tell: bool,
        last: bool,
    ) -> Ran:
        """Runs code in the kernel of its language, within these limits, which are its session's or narrower.

        State that cannot be kept is dropped before this returns or raises, so that the next run starts fresh.
        """
        name = places.language.name
        sandbox = await self.sandbox(name)
        self._deadline = anyio.current_time() + timeout
        before = await sandbox.usage()
        kernel = self._kernels.get(name)
        lived = kernel is not None
        if kernel is None:
            kernel = self._kernels[name] = await start_kernel(sandbox, places)
        self.runs += 1
        self._ran.add(name)
        loss, self.loss = self.loss, None

        async def ask(kernel: Kernel | Program) -> Outcome:
            async with cpu_bound(sandbox, before, limits, timeout, lambda: kernel.stop("cpu_limit")):
                return await self._ask(kernel, code, variables, timeout, limits, on_output, tell, last)

        asked = anyio.current_time()
        outcome = await ask(kernel)
        if lived and outcome.ending == "exited" and not outcome.begun and not self.closed:
            # It was ending while it was asked, such as by a timer of earlier code: this code has not run.
            loss = await self._let_go(name)
            kernel = self._kernels[name] = await start_kernel(sandbox, places)
            asked = anyio.current_time()
            outcome = await ask(kernel)
        with anyio.CancelScope(shield=True):
            until = max(anyio.current_time(), asked + timeout + limits.grace) + _LAST_LOOK
            used, fullness, answers = await self._look(sandbox, before, outcome, until)
            if outcome.ending == "lost" or (not outcome.alive and (outcome.ending != "exited" or used.oom_kills)):
                self.drop("the code was killed")
            elif overcrowded(fullness, limits):
                self.drop("there were more files and folders than may be")
            elif not answers:
                self.drop("the sandbox did not answer any more")
            elif not outcome.alive:
                self._kernels.pop(name, None)
                await kernel.close()
        return Ran(outcome, used, fullness, loss)

    async def _ask(
        self,
        kernel: Kernel | Program,
        code: str,
        variables: Mapping[str, object],
        timeout: float,
        limits: Policy,
        on_output: OnOutput | None,
        tell: bool,
        last: bool,
    ) -> Outcome:
        try:
            return await kernel.run(
                code,
                cell=self.runs,
                variables=variables,
                timeout=timeout,
                output=limits.output,
                grace=limits.grace,
                on_output=on_output,
                tell=tell,
                last=last,
            )
        except BaseException:
            if not kernel.alive:
                self.drop("the code did not stop when it was interrupted and was killed")
            raise

    async def _look(
        self, sandbox: Sandbox, before: Usage, outcome: Outcome, until: float
    ) -> tuple[Usage, Fullness, bool]:
        """The limits that were hit, how full the folders are, and whether all of this was known in time.

        A pod is asked itself, and what its code left running may keep it too busy.
        """
        used, fullness = Usage(), Fullness()
        with anyio.CancelScope(deadline=until) as scope:
            used = (await sandbox.usage()).since(before)
            fullness = await sandbox.fullness(thorough=not succeeded(outcome))
        return used, fullness, not scope.cancelled_caught

    async def _let_go(self, name: str) -> str:
        """Lets an interpreter go that ended by itself, and says what is lost with it."""
        await self._kernels.pop(name).close()
        return f"the interpreter of {name} ended; its variables are lost, files are kept"

    async def refresh(self, places: Places) -> None:
        """Has the interpreter of a language up that has run nothing yet; files and libraries stay.

        A program of a compiled language starts anew in each run anyhow.
        """
        name = places.language.name
        sandbox = await self.sandbox(name)
        if name in self._ran and isinstance(self._kernels.get(name), Kernel):
            await self._kernels.pop(name).close()
        if name not in self._kernels:
            self._kernels[name] = await start_kernel(sandbox, places)
        self._ran.discard(name)

    def use_libraries(self, language: str, installed: tuple[Library, ...]) -> None:
        """Takes note of the libraries that the session has now."""
        kernel = self._kernels.get(language)
        if isinstance(kernel, Program):
            kernel.use_libraries(installed)

    async def clear_figures(self) -> None:
        """Empties the folder of figures, if there is a sandbox."""
        if self._lease is not None:
            with suppress(SandboxLost):
                await copying.empty(self._lease.sandbox, FIGURES)

    def stop(self) -> bool:
        """Interrupts what runs now; false when nothing does."""
        return any(kernel.stop() for kernel in self._kernels.values())  # one at most runs

    def drop(self, reason: str) -> None:
        """Lets the sandbox go with all state in it; the next run starts fresh and says why."""
        if self._lease is not None:
            self._overtime.forget(self._lease.sandbox)
            self._lease.release()
            self.loss = f"{reason}; variables and files are lost"
        self._lease = None
        self._kernels = {}

    def _end_overtime(self) -> None:
        self.drop("what it left running used the processor after the run's time was up")

    def info(self, idle_timeout: float) -> SessionInfo:
        """What its owner may know of it."""
        now = anyio.current_time()
        expires = idle_timeout if self.busy else max(0.0, self.used_at + idle_timeout - now)
        return SessionInfo(self.id, self.busy, tuple(self._kernels), self.runs, now - self.opened_at, expires)


class Sessions:
    """The live sessions; `serve` closes those that nobody uses."""

    def __init__(self, pool: Pool, limits: SessionLimits, tasks: TaskGroup) -> None:
        self._pool = pool
        self._limits = limits
        self._starts = Pace(limits.starts_per_second)
        self._live: dict[str, Session] = {}
        self._overtime = Overtime(tasks)
        tasks.start_soon(self._expire)
        self._changed = anyio.Event()

    def open(self, language: str, policy: Policy) -> Session:
        """A new session for a first use in that language, in a sandbox with that policy.

        Where the limit is reached, an idle one makes room, as `longest_idle` says.

        Raises `CapacityReached` when none can, or too many sandboxes were started just now.
        """
        oldest = None
        room = self._pool.room
        if len(self._live) >= min(self._limits.max, room.sandboxes):
            oldest = longest_idle([*self._live.values()])
            if oldest is None:
                busy = all(session.busy for session in self._live.values())
                raise CapacityReached(
                    _full(self._limits.max, room, "busy" if busy else "busy, or used again and again")
                )
        session = Session(self._pool, policy, language, self._starts, self._overtime)
        if oldest is not None:
            self.close(oldest.id)
        self._live[session.id] = session
        self._changed.set()
        return session

    def get(self, session_id: str) -> Session:
        """The live session of that id, or `UnknownSession`."""
        session = self._live.get(session_id)
        if session is None:
            raise _unknown(session_id, self._limits.idle_timeout)
        return session

    def close(self, session_id: str) -> None:
        """Closes a session: what runs in it is stopped, its sandbox is destroyed beside the caller."""
        session = self.get(session_id)
        del self._live[session_id]
        session.closed = True
        session.stop()
        session.drop("it was closed")

    def infos(self) -> tuple[SessionInfo, ...]:
        """All live sessions, oldest first."""
        return tuple(session.info(self._limits.idle_timeout) for session in self._live.values())

    def close_all(self) -> None:
        """Closes every session, at the server's end."""
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
    """Which session makes room, if any: one that nobody uses now.

    Where those that were used once are a quarter of all, it is one of them: a storm of new sessions takes the places of
    its own, and not of those that others come back to.
    """
    once = [session for session in sessions if session.uses < 2]
    found = once if 4 * len(once) >= len(sessions) else sessions
    return min((one for one in found if not one.busy), key=lambda session: session.used_at, default=None)


def _full(most: int, room: Room, how: str) -> str:
    if most <= room.sandboxes:
        return f"all {most} sessions are {how}; wait for one, or raise sessions.max in the profile"
    return (
        f"the server's {room.of} are enough for {room.sandboxes} sandboxes, and all sessions are {how}; "
        f"wait for one, or make room for more on the server: {room.step}"
    )


def _unknown(session_id: str, idle_timeout: float | None = None) -> UnknownSession:
    after = f" after {format_duration(idle_timeout)} without use" if idle_timeout is not None else ""
    cause = f"session {quoted(session_id, 40)} is not open: it was closed, expired{after}, or never existed"
    return UnknownSession(cause, Step.OPEN_SESSION, session=session_id)
