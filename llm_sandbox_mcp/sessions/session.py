"""What a session owns, a lease and live interpreters, and one use of it at a time."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from ..backends import copying
from ..backends.base import Fullness, Sandbox, Usage, halves
from ..backends.layout import FIGURES
from ..errors import SandboxLost, UnknownSession, quoted
from ..messages import Step
from ..places import Places
from ..policy import Policy
from ..pool.leases import Lease
from ..pool.pool import Pool
from ..results import Library, SessionInfo
from ..runs.cpu_time import cpu_bound
from ..runs.execution import Outcome
from ..runs.interpreter import Interpreter, start_interpreter
from ..runs.requests import RunRequest
from ..runs.verdict import overcrowded, succeeded
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
    sandbox: Sandbox | None
    """Where its files are; None where they went with it."""
    fresh: bool
    """Whether the next run starts without the state of this one."""


class Session:
    """A client's named lease and its live interpreters, one per language. One run at a time; others wait their turn."""

    def __init__(self, pool: Pool, policy: Policy, language: str, starts: Pace, overtime: Overtime) -> None:
        starts.take()
        self.id = secrets.token_hex(16)
        self.policy = policy
        self.runs = 0
        self.uses = 0
        """How often it was asked for something, be it a run or a copy."""
        self.opened_at = self.used_at = anyio.current_time()
        self.closed = False
        self._loss: str | None = None
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
        self._interpreters: dict[str, Interpreter] = {}
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
                    raise unknown(self.id)
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

        Where there is none, it is a new one for the language, or for that of the last use, be it warm or not.
        """
        self._language = language or self._language
        if self._lease is not None and not self._lease.sandbox.alive:
            lost = await self._lease.sandbox.loss()
            self.drop(halves(str(lost))[0] if lost else "its sandbox ended")
        for name, interpreter in list(self._interpreters.items()):
            if not interpreter.running:
                self._loss = await self._let_go(name)
        if self._lease is None:
            if self.closed:  # while what uses it waited for something else: a sandbox for nobody
                raise unknown(self.id)
            if not self._counted:
                self._starts.take()
            self._counted = False
            lease = await self._pool.acquire(self._language, self.policy)
            if self.closed:
                lease.release()
                raise unknown(self.id)
            self._lease = lease
            if lease.interpreter is not None:
                self._interpreters[self._language] = lease.interpreter
        return self._lease.sandbox

    async def run(self, places: Places, request: RunRequest, limits: Policy) -> Ran:
        """Runs code in the interpreter of its language, within these limits, the session's own or narrower ones.

        State that cannot be kept is dropped before this returns or raises, so that the next run starts fresh.
        """
        name = places.language.name
        sandbox = await self.sandbox(name)
        self._deadline = anyio.current_time() + request.timeout
        before = await sandbox.usage()
        lived = name in self._interpreters
        interpreter = await self._interpreter(sandbox, places)
        self.runs += 1
        self._ran.add(name)
        loss, self._loss = self._loss, None

        async def ask(interpreter: Interpreter) -> Outcome:
            async with cpu_bound(sandbox, before, limits, request.timeout, lambda: interpreter.stop("cpu_limit")):
                return await self._ask(interpreter, request)

        asked = anyio.current_time()
        outcome = await ask(interpreter)
        if lived and outcome.ending == "exited" and not outcome.begun and not self.closed:
            # It was ending while it was asked, such as by a timer of earlier code: this code has not run.
            loss = await self._let_go(name)
            interpreter = await self._interpreter(sandbox, places)
            asked = anyio.current_time()
            outcome = await ask(interpreter)
        with anyio.CancelScope(shield=True):
            until = max(anyio.current_time(), asked + request.timeout + limits.grace) + _LAST_LOOK
            used, fullness, answers = await self._look(sandbox, before, outcome, until)
            if outcome.ending == "lost" or (not outcome.alive and (outcome.ending != "exited" or used.oom_kills)):
                self.drop("the code was killed")
            elif overcrowded(fullness, limits):
                self.drop("there were more files and folders than may be")
            elif not answers:
                self.drop("the sandbox did not answer any more")
            elif not outcome.alive:
                self._interpreters.pop(name, None)
                await interpreter.close()
        left = sandbox if self._lease is not None else None
        return Ran(outcome, used, fullness, loss, left, left is None or not outcome.alive)

    async def _interpreter(self, sandbox: Sandbox, places: Places) -> Interpreter:
        """That of the language, started where there is none."""
        name = places.language.name
        if name not in self._interpreters:
            self._interpreters[name] = await start_interpreter(sandbox, places)
        return self._interpreters[name]

    async def _ask(self, interpreter: Interpreter, request: RunRequest) -> Outcome:
        try:
            return await interpreter.run(request, self.runs)
        except BaseException:
            if not interpreter.alive:
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
        await self._interpreters.pop(name).close()
        return f"the interpreter of {name} ended; its variables are lost, files are kept"

    async def refresh(self, places: Places) -> None:
        """Has the interpreter of a language up that has run nothing yet; files and libraries stay.

        A program of a compiled language starts anew in each run anyhow.
        """
        name = places.language.name
        sandbox = await self.sandbox(name)
        used = self._interpreters.get(name) if name in self._ran else None
        if used is not None and used.keeps_state:
            await self._interpreters.pop(name).close()
        await self._interpreter(sandbox, places)
        self._ran.discard(name)

    def use_libraries(self, language: str, installed: tuple[Library, ...]) -> None:
        """Takes note of the libraries that the session has now."""
        if language in self._interpreters:
            self._interpreters[language].use_libraries(installed)

    async def clear_figures(self) -> None:
        """Empties the folder of figures, if there is a sandbox."""
        if self._lease is not None:
            with suppress(SandboxLost):
                await copying.empty(self._lease.sandbox, FIGURES)

    def stop(self) -> bool:
        """Interrupts what runs now; false when nothing does."""
        return any(interpreter.stop() for interpreter in self._interpreters.values())  # one at most runs

    def reset(self) -> None:
        """Lets the sandbox go with all state in it, as its owner wants it: the next run says nothing of that."""
        self.drop("it was reset")
        self._loss = None

    def drop(self, reason: str) -> None:
        """Lets the sandbox go with all state in it; the next run starts fresh and says why."""
        if self._lease is not None:
            self._overtime.forget(self._lease.sandbox)
            self._lease.release()
            self._loss = f"{reason}; variables and files are lost"
        self._lease = None
        self._interpreters = {}

    def _end_overtime(self) -> None:
        self.drop("what it left running used the processor after the run's time was up")

    def info(self, idle_timeout: float) -> SessionInfo:
        """What its owner may know of it."""
        now = anyio.current_time()
        expires = idle_timeout if self.busy else max(0.0, self.used_at + idle_timeout - now)
        return SessionInfo(self.id, self.busy, tuple(self._interpreters), self.runs, now - self.opened_at, expires)


def unknown(session_id: str, idle_timeout: float | None = None) -> UnknownSession:
    after = f" after {format_duration(idle_timeout)} without use" if idle_timeout is not None else ""
    cause = f"session {quoted(session_id, 40)} is not open: it was closed, expired{after}, or never existed"
    return UnknownSession(cause, Step.OPEN_SESSION, session=session_id)
