"""One session: it owns a lease and live interpreters."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from ..backends import copying
from ..backends.base import Fullness, Layer, Sandbox, Usage
from ..backends.layout import FIGURES
from ..base.errors import EngineSilent, EngineUnavailable, OutOfMemory, SandboxLost
from ..base.messages import Note
from ..base.policy import Policy
from ..base.principal import Principal
from ..base.results import Library, OnProgress, SessionInfo
from ..languages.places import Places
from ..pool.leases import Lease
from ..pool.pool import Pool
from ..runs.cpu_time import cpu_bound
from ..runs.interpreter import Interpreter
from ..runs.interpreters import Interpreters
from ..runs.requests import RunRequest
from ..runs.run import Outcome
from ..runs.verdict import overcrowded, succeeded
from .news import Loss, News, Return
from .overtime import Overtime
from .rate_limit import RateLimit
from .turns import InTurn, unknown

_NOT_STOPPED = "the code did not stop when it was interrupted and was killed"

_LAST_CHECK = 0.1
"""Seconds for the last check of a sandbox after the timeout and the grace of its run."""


Reopen = Callable[["Session", Sandbox, str, OnProgress | None], Awaitable[Sequence[Note]]]
"""Opens the state of a session that was put aside in its new sandbox; the text says what ended the last one, if so."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The outcome of one run in a session, and the state that it left."""

    outcome: Outcome
    usage: Usage
    """How often limits were hit during the run, and the processor time that it used."""
    fullness: Fullness
    outside: Sequence[str]
    """Files outside of the working directory that the run made."""
    loss: Loss | None
    """Why the run started without the state of earlier runs; None if it had that state, or a caller knows why not."""
    ended: Loss | None
    """That its interpreter ended by itself, which its own result reports; None if it did not, or more was lost."""
    returned: Return | None
    """That the session had returned to a state that was put aside, if no caller knows of that."""
    sandbox: Sandbox | None
    """The sandbox with the files of the run; None if both are lost."""
    fresh: bool
    """Whether the next run starts without the state of this one."""


class Session(InTurn):
    """A client's named lease and its live interpreters, one per language. One run at a time; others wait their turn."""

    def __init__(
        self,
        session_id: str,
        owner: Principal,
        pool: Pool,
        policy: Policy,
        language: str,
        starts: RateLimit,
        overtime: Overtime,
        put_aside: Reopen | None = None,
        *,
        undoes_kills: bool = False,
        empty: bool = False,
        layer: Layer | None = None,
    ) -> None:
        """`put_aside`: it had been closed, and its first use opens its state again. `undoes_kills`: it also returns to
        its last state that was put aside if code had to be killed. `empty`: it starts from no saved session, since its
        owner opens one in it, whose files are those of a layer if there is one."""
        if put_aside is None:
            starts.take()
        super().__init__(session_id)
        self.owner = owner
        self.policy = policy
        self.runs = 0
        self.opened_at = self.used_at
        self._undoes_kills = undoes_kills
        self.interrupted = False
        """Whether its code was interrupted because the server is ending."""
        self.after_use: Callable[[Session], None] | None = None
        """Called when somebody has used it."""
        self.put_aside = put_aside
        """Opens its last state that was put aside; None if there is none that it would return to after a loss."""
        self._returning = False
        self.news = News()
        self._pool = pool
        self.language = self._language = language
        """The language that its sandbox was made for; the other is that of the last use."""
        self._starts = starts
        self._overtime = overtime
        self._deadline = 0.0
        """Until when processes that the last use left running may use the processor."""
        self._counted = put_aside is None
        """Whether the next start of a sandbox is counted already; the first one is counted with the session."""
        self._earlier = 0
        """The runs of the saved session that it started from."""
        self._empty = empty
        self._layer = layer
        self._lease: Lease | None = None
        self.broken_off = False
        """Whether its last run was interrupted."""
        self._acting = False
        """Whether code of the server's own runs."""

    @property
    def has_sandbox(self) -> bool:
        """Whether the next use finds the sandbox of the last one."""
        return self._lease is not None and self._lease.sandbox.alive

    @property
    def cells(self) -> int:
        """The number of its last run among all whose code it can have, also of those before it was saved and opened."""
        return self._earlier + self.runs

    @property
    def has_state(self) -> bool:
        """Whether the next use finds what the last one left, in its sandbox or by opening what was put aside."""
        return self.has_sandbox or self.put_aside is not None

    @asynccontextmanager
    async def exclusive(
        self, take_back: Callable[[], None] | None = None, *, last: bool = False
    ) -> AsyncIterator[None]:
        """Waits for this session's turn and holds it, as `InTurn` says; `stop` ends it while no code runs.

        Processes that the use leaves running may go on until its deadline, however the use ends. If the sandbox is
        lost meanwhile, the error is the one that its engine reports.
        """
        try:
            async with super().exclusive(take_back, last=last):
                self._deadline = anyio.current_time() + self.policy.timeout
                if self._lease is not None:
                    self._overtime.forget(self._lease.sandbox)
                try:
                    yield
                except SandboxLost as lost:
                    if self._lease is not None and (reported := await self._lease.sandbox.loss()):
                        raise reported from lost
                    raise
        finally:
            self._watch()
            if self.after_use is not None and not (self.closed or self.ending):
                self.after_use(self)

    @asynccontextmanager
    async def spare(self, scope: anyio.CancelScope) -> AsyncIterator[None]:
        """Holds the turn for what the server does in spare time, as `InTurn` says.

        How long the processes that the last use left may go on does not change.
        """
        async with super().spare(scope):
            deadline, put_aside = self._deadline, self.put_aside
            if self._lease is not None:
                self._overtime.forget(self._lease.sandbox)
            try:
                yield
            finally:
                self._deadline = deadline
                if not self.closed:  # what has to be killed here is no code of a caller
                    self.put_aside = self.put_aside or put_aside
                self._watch()

    def _watch(self) -> None:
        if self._lease is not None and not self.busy:
            self._overtime.watch(self._lease.sandbox, self._deadline, self._end_overtime)

    async def sandbox(self, language: str = "", on_progress: OnProgress | None = None) -> Sandbox:
        """The session's sandbox; interpreters that ended since the last run are removed.

        If there is none, it gets a new one, warm or not, for the language, or for the language of the last use; or one
        for the state that was put aside, or that sessions in its own language start from, which is opened in it. Raises
        `EngineUnavailable` as long as the engine that was silent in the last run still is.
        """
        self._language = language or self._language
        for interpreter in self._interpreters or ():
            if interpreter.silence:
                await self._catch_up(interpreter)
        if self._lease is not None and not self._lease.sandbox.alive:
            await self._drop_lost(self._lease.sandbox)
        if self._interpreters is not None:
            for name in await self._interpreters.remove_ended():
                self.news.end_of(name)
        if self._lease is None:
            if self._returning:
                raise SandboxLost("the sandbox ended while the session was opened again", "try again")
            if self.closed:  # while its user waited for something else: nobody needs a sandbox now
                raise unknown(self.id)
            if not self._counted:
                self._starts.take()
            self._counted = False
            own = self.put_aside is not None or self.language in self._pool.starting
            name = self.language if own else self._language
            empty, self._empty = self._empty or self.put_aside is not None, False
            lease = await self._pool.acquire(name, self.policy, empty=empty, layer=self._layer)
            self._layer = None
            if self.closed:
                lease.release()
                raise unknown(self.id)
            self._lease, self.language = lease, name
            if self.put_aside is not None:
                await self._return(self.put_aside, lease.sandbox, on_progress)
            elif not empty:
                await self._start(lease, on_progress)
            if self._lease is None:  # it was closed meanwhile
                raise unknown(self.id)
        return self._lease.sandbox

    async def _return(self, reopen: Reopen, sandbox: Sandbox, on_progress: OnProgress | None) -> None:
        """Opens what was put aside; if that fails, the next use tries it again."""
        loss, self._returning = self.news.loss, True
        try:
            notes = await reopen(self, sandbox, loss.cause if loss is not None else "", on_progress)
        except BaseException:
            self.drop("it could not be opened again")
            self.put_aside, self.news.loss = reopen, loss
            raise
        finally:
            self._returning = False
        self.news.return_to(notes)

    async def _start(self, lease: Lease, on_progress: OnProgress | None) -> None:
        """Opens the saved session that those in its language start from, unless that was done while it waited."""
        started, self._acting = lease.started, True
        try:
            if started is None:
                started = await self._pool.begin(lease, self.language, on_progress)
        except BaseException:
            loss = self.news.loss
            self.drop("it could not start from a saved session")
            self.news.loss = loss
            raise
        finally:
            self._acting = False
        if started is not None:
            self._earlier = started.runs
            for note in started.notes:
                self.news.tell(note)

    async def run(self, places: Places, request: RunRequest, limits: Policy) -> Ran:
        """Runs code in the interpreter of its language, within these limits: the session's own or lower ones.

        State that cannot be kept is dropped before this returns or raises, so that the next run starts fresh. Raises
        `EngineSilent` if the engine passed nothing on at the end; the state is kept.
        """
        name = places.language.name
        sandbox = await self.sandbox(name)
        self._deadline = anyio.current_time() + request.timeout
        interpreters = self._own_interpreters()
        before = await sandbox.usage()
        lived = name in interpreters
        interpreter = await interpreters.start(places)
        self.runs += 1
        self.broken_off = True  # also if this is cancelled
        interpreters.ran.add(name)
        loss, returned, ended = self.news.loss, self.news.returned, None

        async def ask(interpreter: Interpreter) -> Outcome:
            async with cpu_bound(sandbox, before, limits, request.timeout, lambda: interpreter.stop("cpu_limit")):
                return await self._ask(interpreter, request, self.cells)

        sent_at = anyio.current_time()
        outcome = await ask(interpreter)
        if lived and outcome.ending == "exited" and not outcome.begun and not self.closed:
            # The interpreter was already ending, such as by a timer of earlier code: this code has not run.
            await interpreters.end(name)
            loss = self.news.end_of(name)
            interpreter = await interpreters.start(places)
            sent_at = anyio.current_time()
            outcome = await ask(interpreter)
        self.broken_off = outcome.ending == "cancelled"
        if outcome.silence:
            unknown_end = f"{outcome.silence.cause}, and what the code did is unknown"
            raise EngineSilent(unknown_end, "once it answers, go on in the same session, which keeps its state")
        until = max(anyio.current_time(), sent_at + request.timeout + limits.grace) + _LAST_CHECK
        used, fullness, outside, answers = await self._check(sandbox, before, outcome, until)
        left_alone = outcome.alive or outcome.ended or outcome.floods
        if outcome.ending == "lost" and not used.oom_kills:
            await self._drop_lost(sandbox)
        elif outcome.ending == "lost" or not left_alone or (not outcome.alive and used.oom_kills):
            self.drop("the code was killed")
        elif overcrowded(fullness, limits):
            self.drop("there were more files and folders than allowed")
        elif not answers:
            self.drop("the sandbox did not answer any more")
        elif not outcome.alive:
            with anyio.CancelScope(shield=True):
                await interpreters.end(name)
            ended = self.news.end_of(name)
        left = sandbox if self._lease is not None else None
        return Ran(outcome, used, fullness, outside, loss, ended, returned, left, left is None or not outcome.alive)

    async def act(self, places: Places, code: str, timeout: float) -> Outcome:
        """Runs code of the server's own in the interpreter of a language, as `Interpreters.act` does, in its turn."""
        name, timeout = places.language.name, min(timeout, self.policy.timeout)
        sandbox = await self.sandbox(name)
        interpreters = self._own_interpreters()
        self._deadline = anyio.current_time() + timeout
        self._acting = True
        try:
            outcome = await interpreters.act(places, code, timeout)
        except BaseException:
            self._drop_unstopped(interpreters.get(name))
            raise
        finally:
            self._acting = False
        if outcome.ending == "lost":
            await self._drop_lost(sandbox)
        elif not outcome.alive:
            self.news.end_of(name)
        return outcome

    @property
    def _interpreters(self) -> Interpreters | None:
        return self._lease.interpreters if self._lease is not None else None

    def _own_interpreters(self) -> Interpreters:
        """Those of its sandbox, which may have been dropped while the caller waited for something else."""
        if self._lease is None:
            raise SandboxLost("the sandbox has ended", "run again")
        return self._lease.interpreters

    async def _ask(self, interpreter: Interpreter, request: RunRequest, cell: int) -> Outcome:
        try:
            return await interpreter.run(request, cell)
        except BaseException:
            self._drop_unstopped(interpreter)
            raise

    def _drop_unstopped(self, interpreter: Interpreter | None) -> None:
        if interpreter is not None and not interpreter.alive and not interpreter.silence:
            self.drop(_NOT_STOPPED)

    async def _catch_up(self, interpreter: Interpreter) -> None:
        """Takes in what an engine that was silent passes on late; `EngineUnavailable` if it still is."""
        await interpreter.catch_up()
        if interpreter.silence:
            cause, step = interpreter.silence
            raise EngineUnavailable(f"{cause}, so nothing was done, and the session keeps its state", step)
        if not interpreter.alive and interpreter.running:
            self.drop(_NOT_STOPPED)

    async def _check(
        self, sandbox: Sandbox, before: Usage, outcome: Outcome, until: float
    ) -> tuple[Usage, Fullness, Sequence[str], bool]:
        """The usage of the run, how full the folders are, what the run left outside of the working directory, and
        whether all was known in time; it cannot be cancelled.

        A pod is queried for this, and processes that the code left running can keep it too busy. In a sandbox that has
        ended none are left, and its engine limits how long it looks for the reason.
        """
        used, fullness = Usage(), Fullness()
        outside: Sequence[str] = ()
        with anyio.CancelScope(shield=True, deadline=until if sandbox.alive else math.inf) as scope:
            used = (await sandbox.usage()).since(before)
            fullness = await sandbox.fullness(thorough=not succeeded(outcome))
            outside = await sandbox.new_outside()
        return used, fullness, outside, not scope.cancelled_caught

    async def refresh(self, places: Places) -> None:
        """Starts an interpreter of a language that has run nothing yet; files and libraries stay.

        Compiled languages start a new program in each run anyway.
        """
        await self.sandbox(places.language.name)
        await self._own_interpreters().refresh(places)

    async def restart(self) -> None:
        """Ends the interpreters, as its owner wants it: the next run starts another one, and reports no loss."""
        if self._interpreters is not None:
            await self._interpreters.restart()
        self.news.loss = None

    def has_run(self, language: str) -> bool:
        """Whether its interpreter of the language has the state of an earlier run."""
        return self._interpreters is not None and self._interpreters.has_run(language)

    def missed(self, language: str) -> Collection[str]:
        """The modules that its interpreter of the language looked for in vain before any code asked."""
        return self._interpreters.missed(language) if self._interpreters is not None else ()

    async def use_libraries(self, language: str, installed: tuple[Library, ...]) -> None:
        """Takes note of the libraries that the session has now, as `Interpreters.use_libraries` says."""
        if self._interpreters is not None:
            await self._interpreters.use_libraries(language, installed)

    def has(self, sandbox: Sandbox) -> bool:
        """Whether this is still its sandbox."""
        return self._lease is not None and self._lease.sandbox is sandbox and sandbox.alive

    @property
    def used(self) -> tuple[str, ...]:
        """The languages whose interpreters have the state of an earlier run."""
        return self._interpreters.used if self._interpreters is not None else ()

    def go_on(self, runs: int, languages: Iterable[str]) -> None:
        """Takes note that it has the state of so many runs in these languages, which another session left."""
        self.runs = runs
        if self._interpreters is not None:
            self._interpreters.ran.update(languages)
        self.news.loss = None

    async def clear_figures(self) -> None:
        """Empties the folder of figures, if there is a sandbox."""
        if self._lease is not None:
            with suppress(SandboxLost):
                await copying.empty(self._lease.sandbox, FIGURES)

    def stop(self) -> bool:
        """Interrupts the code that runs, or else ends the use that has the turn; returns false if there is neither.

        Code of the server's own is not interrupted, such as what saves variables: it ends soon.
        """
        if not self._acting and any(interpreter.stop() for interpreter in self._interpreters or ()):  # at most one runs
            return True
        return self.take_back_turn()

    def reset(self) -> None:
        """Drops the sandbox with all its state, as its owner wants it; the next run does not report the loss."""
        self.drop("it was reset")
        self.put_aside = None
        self.news.clear()

    def drop(self, reason: str, *, by_code: bool = True) -> None:
        """Drops the sandbox with all its state; the next run starts fresh and reports the reason.

        If code had no part in it, it returns to the state that was put aside, if there is one; also if code had to be
        killed because the server ends.
        """
        if by_code and not self._undoes_kills and not self.ending:
            self.put_aside = None
        if self._lease is not None:
            self._overtime.forget(self._lease.sandbox)
            self._lease.release()
            self.news.loss = Loss(reason)
        self._lease = None

    async def _drop_lost(self, sandbox: Sandbox) -> None:
        """Drops a sandbox that has ended, for the reason that its engine tells."""
        lost = await sandbox.loss()
        self.drop(lost.cause if lost else "its sandbox ended", by_code=isinstance(lost, OutOfMemory))

    def _end_overtime(self) -> None:
        self.drop("processes that it left running used the processor after the run's deadline")

    def info(self, idle_timeout: float) -> SessionInfo:
        """The session as its owner sees it."""
        now = anyio.current_time()
        expires = idle_timeout if self.busy else max(0.0, self.used_at + idle_timeout - now)
        languages = self._interpreters.languages if self._interpreters is not None else ()
        return SessionInfo(self.id, self.owner, self.busy, languages, self.runs, now - self.opened_at, expires)
