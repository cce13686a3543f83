"""Runs code in a session: what is checked before the run, and what is reported after it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from ..backends.copying import COPY_SECONDS
from ..base.errors import SandboxLost
from ..base.messages import Note
from ..base.policy import OF_RUN, Policy, narrow
from ..base.results import DEFAULT_TIMEOUT, Execution, OnOutput, OnProgress
from ..files.artifacts import ArtifactStore, long_streams
from ..host.audit import Audit
from ..languages.languages import Language, Languages
from ..languages.places import Places
from ..profile.profile import Profile
from ..rules.checking import Checker
from ..runs.hints import hint_of
from ..runs.protocol import Report
from ..runs.requests import RunRequest, checked_code, checked_stdin, checked_variables, without_notebook_lines
from ..runs.verdict import excerpt, exit_code_of, finished, notes_of, status_of
from ..sessions.live import SessionId
from ..sessions.session import Loss, Session
from .installing import Installing
from .output import WholeOutputs
from .preparation import Preparation
from .sessions import Sessions
from .views import Views


class Asked(TypedDict, total=False):
    """What a caller can ask of a run; `Executing.prepare` describes it, and has the defaults."""

    language: str
    session_id: SessionId
    libraries: Sequence[str]
    timeout: float | None
    variables: Mapping[str, object] | None
    stdin: str
    limits: Mapping[str, float] | None
    keep_session: bool


@dataclass(slots=True)
class Prepared:
    """A run that was checked and has its session."""

    language: Language
    session: Session
    request: RunRequest
    policy: Policy
    libraries: Sequence[str]
    """To be installed first."""
    notes: list[Note]
    new: bool
    """Whether the session was opened for this run."""
    keep: bool
    begun: bool = False
    """Whether it has the session's turn and its libraries, so that `Session.stop` stops this run and no other."""
    losses: Sequence[Loss | None] = ()
    """The losses of state that its result reports."""
    report: Report | None = None
    """What its runner reported, once it has run."""

    def taken(self) -> None:
        """Takes note that the caller has the result: a result that nobody gets has told nobody of a loss."""
        self.session.told_of(self.losses)


class Executing:
    """Runs code in the sessions of all callers."""

    def __init__(
        self,
        profile: Profile,
        languages: Languages,
        sessions: Sessions,
        preparation: Preparation,
        installing: Installing,
        store: ArtifactStore,
        views: Views,
        checker: Checker,
        audit: Audit,
    ) -> None:
        self._limits = profile.limits
        self._policy = profile.policy()
        self._opened = profile.views
        self._languages = languages
        self._sessions = sessions
        self._preparation = preparation
        self._installing = installing
        self._store = store
        self._views = views
        self._checker = checker
        self._audit = audit
        self._outputs = WholeOutputs()

    async def execute(
        self,
        code: str,
        *,
        on_output: OnOutput | None = None,
        on_progress: OnProgress | None = None,
        **asked: Unpack[Asked],
    ) -> Execution:
        """Runs code in a session: `prepare`, then `run`."""
        prepared = await self.prepare(code, on_output=on_output, **asked)
        execution = await self.run(prepared, on_progress)
        prepared.taken()
        return execution

    async def prepare(
        self,
        code: str,
        *,
        on_output: OnOutput | None = None,
        language: str = "python",
        session_id: SessionId = "",
        libraries: Sequence[str] = (),
        timeout: float | None = None,
        variables: Mapping[str, object] | None = None,
        stdin: str = "",
        limits: Mapping[str, float] | None = None,
        keep_session: bool = True,
    ) -> Prepared:
        """Checks a run in a session, or in a new one if none is named; `libraries` are to be installed into it first.

        `stdin` is what the code reads from standard input. `timeout` is in seconds; the default is 30 or the profile's
        limit, whichever is less. `limits` lowers other limits, with the names and units of `Policy`: limits of a run
        for this run, limits of a sandbox for a new session. Every request error is raised here, before anything starts.
        """
        chosen = self._languages[language]
        code, notes = checked_code(code, self._limits.code)
        of_run, of_sandbox = _divided(limits or {}, timeout)
        narrow(self._policy, of_run)
        values = checked_variables(variables or {}, chosen)
        given = checked_stdin(stdin, chosen)
        self._installing.check(chosen, libraries)
        notes += await self._judge(chosen, code)
        instead = without_notebook_lines(code, chosen)
        if instead is not None:
            notes += [note for note in await self._judge(chosen, instead) if note not in notes]
        session = self._sessions.find(session_id, chosen, of_sandbox)
        policy = narrow(session.policy, of_run, "the session's")
        request = RunRequest(
            code,
            timeout=min(DEFAULT_TIMEOUT, policy.timeout) if timeout is None else policy.timeout,
            output=policy.output,
            grace=policy.grace,
            variables=values,
            stdin=given,
            on_output=on_output,
            instead=instead,
        )
        return Prepared(chosen, session, request, policy, libraries, notes, new=not session_id, keep=keep_session)

    async def run(self, prepared: Prepared, on_progress: OnProgress | None = None) -> Execution:
        """Runs what was prepared. If cancelled, interrupts the code and keeps the session."""
        chosen, session, request, policy = prepared.language, prepared.session, prepared.request, prepared.policy
        notes = prepared.notes
        async with self._sessions.use(session, new=prepared.new, keep=prepared.keep):
            places = await self._preparation.places(chosen, on_progress)
            sandbox = await self._preparation.sandbox(session, chosen, on_progress)
            if prepared.libraries:
                await self._installing.into(session, sandbox, places, prepared.libraries, on_progress)
            with sandbox.patience.shared():
                notes += await self._views.show(sandbox)
            prepared.begun = True
            ran = await session.run(places, request, policy)
            outcome = ran.outcome
            prepared.report = outcome.report
            status = status_of(outcome, ran.usage, ran.fullness, policy)
            if outcome.ending == "lost" and status == "error":
                raise await sandbox.loss() or SandboxLost(
                    "the sandbox ended while the code ran, and what the code did is unknown", "run again to start fresh"
                )
            long = long_streams(outcome, session.runs, self._limits.shown)
            whole = finished(status, outcome, program=chosen.handler.build is not None)
            with sandbox.patience.shared(COPY_SECONDS):
                artifacts, left_out = await self._store.collect(session.id, ran.sandbox, outcome, long)
                if ran.sandbox is not None and prepared.keep:
                    left_out += await self._outputs.leave(ran.sandbox, long)
                left_out += await self._views.save(ran.sandbox, whole=whole, last=not prepared.keep)
        if places.lacking:
            notes.append(_note_of_lacking(chosen, places))
        prepared.losses = (ran.loss, ran.ended)
        if ran.loss is not None:
            notes.append(Note("started_fresh", f"started fresh: since an earlier run {ran.loss.reason}"))
        # The notes that explain the status come first.
        explanations = notes_of(outcome, ran.usage, ran.fullness, status, policy, request.timeout)
        if status == "error":
            companions = [self._languages[name] for name in chosen.handler.companions]
            check = self._installing.check_hint
            seen = {view: view in sandbox.mounted for view in self._opened}
            hint = hint_of([chosen, *companions], outcome.stderr, policy.network, check, seen)
            explanations += [hint] if hint is not None else []
        return Execution(
            status=status,
            exit_code=exit_code_of(outcome),
            stdout=excerpt(outcome.stdout, self._limits.shown),
            stderr=excerpt(outcome.stderr, self._limits.shown),
            result=outcome.report.result if outcome.report is not None else None,
            duration=outcome.duration,
            session_id=session.id,
            session_state="ended" if session.closed else "kept" if session.has_sandbox and not ran.fresh else "fresh",
            artifacts=tuple(artifacts),
            notes=(*explanations, *notes, *left_out),
        )

    async def _judge(self, language: Language, code: str) -> list[Note]:
        """The warnings of the rules; none for empty code."""
        if not code:
            return []
        with self._audit.denials("code.refused", language=language.name):
            return await self._checker.check(language, checked_code(code, self._limits.code)[0])


def _note_of_lacking(language: Language, places: Places) -> Note:
    cause = f"{language.name} has none of the libraries that belong to it, since they could not be prepared"
    step = "only the operator can fix this, and finds the reason with `llm-sandbox-mcp doctor`"
    return Note("no_libraries", cause, step, language=language.name, reason=places.lacking)


def _divided(limits: Mapping[str, float], timeout: float | None) -> tuple[dict[str, float], dict[str, float]]:
    """The limits of a run, and those of a sandbox."""
    of_run = {name: value for name, value in limits.items() if name in OF_RUN}
    if timeout is not None:
        of_run["timeout"] = timeout
    return of_run, {name: value for name, value in limits.items() if name not in OF_RUN}
