"""Session ids and what they own: a lease, live kernels, and a time to expire."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import TaskGroup

from .backends.base import FIGURES, Sandbox, Usage
from .errors import CapacityReached, SandboxLost, UnknownSession, quoted
from .execution import Outcome
from .kernel import Kernel, Places
from .policy import Policy
from .pool import Lease, Pool
from .profile import SessionLimits
from .program import Program
from .results import Library, OnOutput, SessionInfo
from .units import format_duration


class Session:
    """A client's named lease and its live kernels, one per language used. One run at a time; others wait their turn."""

    def __init__(self, pool: Pool, policy: Policy) -> None:
        self.id = secrets.token_hex(16)
        self.policy = policy
        self.runs = 0
        self.opened_at = self.used_at = anyio.current_time()
        self.closed = False
        self.loss: str | None = None
        """Why state was lost since the last run, until the next run has said so."""
        self._pool = pool
        self._lease: Lease | None = None
        self._kernels: dict[str, Kernel | Program] = {}
        self._turn = anyio.Lock()
        self._users = 0

    @property
    def busy(self) -> bool:
        """Whether a caller uses it or waits for it."""
        return self._users > 0

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Waits for this session's turn and holds it; raises `UnknownSession` when it was closed meanwhile."""
        self._users += 1
        try:
            async with self._turn:
                if self.closed:
                    raise UnknownSession(_unknown(self.id))
                yield
        finally:
            self._users -= 1
            self.used_at = anyio.current_time()

    async def sandbox(self) -> Sandbox:
        """The session's sandbox, opened when there is none; interpreters that ended since the last run are let go."""
        if self._lease is not None and not self._lease.sandbox.alive:
            self.drop("its sandbox ended")
        for name, kernel in list(self._kernels.items()):
            if not kernel.running:
                del self._kernels[name]
                await kernel.close()
                self.loss = f"the interpreter of {name} ended; its variables are lost, files are kept"
        if self._lease is None:
            lease = await self._pool.acquire(self.policy)
            if self.closed:
                lease.release()
                raise UnknownSession(_unknown(self.id))
            self._lease = lease
        return self._lease.sandbox

    async def run(
        self, places: Places, code: str, *, variables: Mapping[str, object], timeout: float, on_output: OnOutput | None
    ) -> tuple[Outcome, Usage]:
        """Runs code in the kernel of its language, and tells which limits were hit meanwhile.

        State that cannot be kept is dropped before this returns or raises, so that the next run starts fresh.
        """
        sandbox = await self.sandbox()
        before = await sandbox.usage()
        name = places.language.name
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = await _start(sandbox, places)
        self.runs += 1
        try:
            outcome = await kernel.run(
                code,
                cell=self.runs,
                variables=variables,
                timeout=timeout,
                output=self.policy.output,
                on_output=on_output,
            )
        except BaseException:
            if not kernel.alive:
                self.drop("the code did not stop when it was interrupted and was killed")
            raise
        with anyio.CancelScope(shield=True):
            after = await sandbox.usage()
            used = Usage(after.oom_kills - before.oom_kills, after.pids_refused - before.pids_refused, after.disk_full)
            if outcome.ending == "lost" or (not outcome.alive and (outcome.ending != "exited" or used.oom_kills)):
                self.drop("the code was killed")
            elif not outcome.alive:
                self._kernels.pop(name, None)
                await kernel.close()
        return outcome, used

    def use_libraries(self, language: str, installed: tuple[Library, ...]) -> None:
        """Takes note of the libraries that the session has now."""
        kernel = self._kernels.get(language)
        if isinstance(kernel, Program):
            kernel.use_libraries(installed)

    async def clear_figures(self) -> None:
        """Empties the folder of figures, if there is a sandbox."""
        if self._lease is not None:
            with suppress(SandboxLost):
                await self._lease.sandbox.empty(FIGURES)

    def stop(self) -> bool:
        """Interrupts what runs now; false when nothing does."""
        return any(kernel.stop() for kernel in self._kernels.values())  # one at most runs

    def drop(self, reason: str) -> None:
        """Lets the sandbox go with all state in it; the next run starts fresh and says why."""
        if self._lease is not None:
            self._lease.release()
            self.loss = f"{reason}; variables and files are lost"
        self._lease = None
        self._kernels = {}

    def info(self, idle_timeout: float) -> SessionInfo:
        """What its owner may know of it."""
        now = anyio.current_time()
        expires = idle_timeout if self.busy else max(0.0, self.used_at + idle_timeout - now)
        return SessionInfo(self.id, self.busy, tuple(self._kernels), self.runs, now - self.opened_at, expires)


async def _start(sandbox: Sandbox, places: Places) -> Kernel | Program:
    handler = places.language.handler
    if handler.build is not None:
        return Program(sandbox, places, handler.build)
    assert handler.runner is not None  # the handler's model has one of the two
    return await Kernel.start(sandbox, places, handler.runner)


class Sessions:
    """The live sessions; `serve` closes those that nobody uses."""

    def __init__(self, pool: Pool, limits: SessionLimits, policy: Policy, tasks: TaskGroup) -> None:
        self._pool = pool
        self._limits = limits
        self._policy = policy
        self._live: dict[str, Session] = {}
        tasks.start_soon(self._expire)
        self._changed = anyio.Event()

    def open(self) -> Session:
        """A new session; the least recently used idle one makes room where the profile's limit is reached.

        Raises `CapacityReached` when none is idle.
        """
        while len(self._live) >= self._limits.max:
            idle = [session for session in self._live.values() if not session.busy]
            if not idle:
                raise CapacityReached(
                    f"all {self._limits.max} sessions are busy; wait for one, or raise sessions.max in the profile"
                )
            self.close(min(idle, key=lambda session: session.used_at).id)
        session = Session(self._pool, self._policy)
        self._live[session.id] = session
        self._changed.set()
        return session

    def get(self, session_id: str) -> Session:
        """The live session of that id, or `UnknownSession`."""
        session = self._live.get(session_id)
        if session is None:
            raise UnknownSession(_unknown(session_id, self._limits.idle_timeout))
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


def _unknown(session_id: str, idle_timeout: float | None = None) -> str:
    after = f" after {format_duration(idle_timeout)} without use" if idle_timeout is not None else ""
    return (
        f"session {quoted(session_id, 40)} is not open: it was closed, expired{after}, or never existed; "
        "call without session_id to open a new one"
    )
