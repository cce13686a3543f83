"""Work: a run or an installation. Whoever has its id can wait for it, read its output, or cancel it."""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import anyio

from ..base.errors import SandboxError
from ..base.messages import Note
from ..base.policy import narrow
from ..base.results import DEFAULT_TIMEOUT, Execution, Installation, OnOutput, OnProgress, Output, StreamName
from ..runs.protocol import Report
from ..runs.requests import RunRequest
from ..sessions.news import Loss, Return
from ..sessions.session import Session
from .ask import Checked
from .output import NewOutput

Result = Execution | Installation

State = Literal["waiting", "preparing", "installing", "running", "saving", "ended"]
"""It waits for its turn in the session, prepares a sandbox, installs libraries, runs code, saves what that left."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listener:
    """A caller that waits for work."""

    on_output: OnOutput | None = None
    on_progress: OnProgress | None = None


NOBODY = Listener()


class Work:
    """A run or an installation. It ends by itself, at its timeout, or when it is cancelled."""

    def __init__(self, work_id: str, checked: Checked, session: Session, *, alone: bool, shown: int) -> None:
        """`alone`: it goes on if its caller leaves. `shown` is how many characters of each stream are kept to be read.

        Raises `PolicyDenied` for a limit of its code above that of the session.
        """
        self.id = work_id
        self.ask = checked.ask
        self.language = checked.language
        self.notes = checked.notes
        self.session = session
        self.policy = narrow(session.policy, checked.ask.limits_of_run, "the session's")
        """The limits of its code."""
        self.request = checked.request and self._limited(checked.request)
        """What runs, within these limits; None for an installation."""
        self.alone = alone
        self.state: State = "waiting"
        self.told = bool(checked.ask.session_id)
        """Whether its caller knows its session: it named one, or was told the id of the new one."""
        self.given = False
        """Whether a caller has its result, or its error."""
        self.report: Report | None = None
        """What the runner of its code reported."""
        self.news: Sequence[Loss | Return | None] = ()
        """The losses of state, and the return to an earlier one, that its result reports."""
        self.created = datetime.now(UTC)
        self.started_at = anyio.current_time()
        self.ended_at = 0.0
        self._new: Mapping[StreamName, NewOutput] = {"stdout": NewOutput(shown), "stderr": NewOutput(shown)}
        self._listeners: list[Listener] = []
        self._scope = anyio.CancelScope()
        self._awaited: anyio.Event | None = None
        """Set at its end; made when somebody waits for that."""
        self._result: Result | None = None
        self._error: Exception | None = None

    @property
    def session_id(self) -> str:
        """The id of its session."""
        return self.session.id

    @property
    def installs(self) -> bool:
        """Whether it only installs libraries."""
        return self.ask.code is None

    @property
    def heard(self) -> bool:
        """Whether anybody can hear of its progress: who comes back for it, or a caller that listens."""
        return self.alone or any(listener.on_progress for listener in self._listeners)

    @property
    def ended(self) -> bool:
        """Whether its result, or its error, is known."""
        return self.state == "ended"

    @property
    def cancelled(self) -> bool:
        """Whether it ended because it was cancelled."""
        return self._result is not None and self._result.status == "cancelled"

    @property
    def outcome(self) -> str:
        """How it ended: the status of its result, or `failed`; empty until then."""
        return "" if not self.ended else self._result.status if self._result is not None else "failed"

    @property
    def duration(self) -> float:
        """Seconds since it was started, or that it took."""
        return (self.ended_at if self.ended else anyio.current_time()) - self.started_at

    @property
    def execution(self) -> Execution:
        """The result of a run that has ended without an error."""
        assert isinstance(self._result, Execution)
        return self._result

    @property
    def installation(self) -> Installation:
        """The result of an installation that has ended without an error."""
        assert isinstance(self._result, Installation)
        return self._result

    async def wait(self, seconds: float = math.inf, listener: Listener = NOBODY) -> Result | None:
        """Waits for the result; None if it is not known after so many seconds. Raises the error of work that failed.

        The work goes on if the caller is cancelled.
        """
        if not self.ended:
            self._awaited = self._awaited or anyio.Event()
            with self.passing_on(listener), anyio.move_on_after(seconds):
                await self._awaited.wait()
        if self._error is not None:
            self.given = True
            raise self._error.with_traceback(None)  # otherwise it would grow each time
        if self._result is None:
            self.told = True  # the caller learns of the session with this answer
        return self._result

    def read(self) -> tuple[Output, Output]:
        """The standard output and standard error that appeared since the last call: the end of it, if it is long.

        What the server does before the code runs, such as installing libraries, is told on standard error.
        """
        return self._new["stdout"].take(), self._new["stderr"].take()

    def taken(self) -> None:
        """Takes note that a caller has its result: one that nobody gets has told nobody of a loss."""
        self.given = True
        self.session.news.told_of(self.news)

    def cancel(self) -> None:
        """Interrupts its code, or takes back what has not begun; its result will say so."""
        if self.state == "waiting":
            self._scope.cancel()
        elif not self.ended:  # it has the session's turn
            self.session.stop()

    def take_back(self) -> None:
        """Ends it unless its code has run: then its result comes soon."""
        if self.state != "saving":
            self._scope.cancel()

    async def output(self, stream: StreamName, text: str) -> None:
        """Takes output of the code: passes it on to whoever listens, and keeps it until it is read."""
        self._new[stream].add(text)
        for listener in [*self._listeners]:
            if listener.on_output is not None:
                await listener.on_output(stream, text)

    async def progress(self, text: str) -> None:
        """Takes one line about what the server does for it."""
        self._new["stderr"].add(f"{text}\n")
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

    async def do(self, act: "Act") -> None:
        """Does it in the task of its caller: if that is cancelled, so is the work. Raises its error."""
        try:
            with self._scope:
                self._result = await act(self)
            self._result = self._result or self._cancelled()
        except Exception as error:
            self._error = error
            raise
        except BaseException:  # its caller is cancelled
            self._result = self._cancelled()
            raise
        finally:
            self.state, self.ended_at = "ended", anyio.current_time()
            self.request = None  # which leads back here, and would wait for the garbage collector
            if self._awaited is not None:
                self._awaited.set()

    async def do_alone(self, act: "Act") -> None:
        """Does it in a task of its own; its result and its error are for those who wait for them."""
        try:
            await self.do(act)
        except SandboxError:
            pass  # whoever waits for it gets the error
        except Exception:
            _log.exception("%s failed", "an installation" if self.installs else "a run")
        finally:
            # Results are kept for long, and megabytes can have been asked and reported.
            self.report = None
            self.ask = replace(self.ask, code=None if self.installs else "", variables=None, stdin="")
            if self._error is not None:  # the frames of a traceback keep all that was asked, too
                self._error.__cause__ = self._error.__context__ = self._error.__traceback__ = None
            self.session.leave()

    def _limited(self, request: RunRequest) -> RunRequest:
        policy = self.policy
        timeout = min(DEFAULT_TIMEOUT, policy.timeout) if self.ask.timeout is None else policy.timeout
        return replace(request, timeout=timeout, output=policy.output, grace=policy.grace, on_output=self.output)

    def _cancelled(self) -> Result:
        if self.installs:
            return Installation(self.session_id, (), (), "cancelled")
        when = "while its code ran" if self.state in ("running", "saving") else "before its code had begun"
        return Execution(
            status="cancelled",
            exit_code=130,
            stdout=Output(""),
            stderr=Output(""),
            result=None,
            duration=0.0,
            session_id=self.session_id,
            session_state="ended" if self.session.closed else "kept",
            notes=(Note("cancelled", f"it was cancelled {when}"),),
        )


Act = Callable[[Work], Awaitable[Result]]
"""What does work; `Running.do`."""
