"""Checks what callers ask for, does it in a session, and reports what came of it."""

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from ..backends.base import Sandbox
from ..backends.copying import COPY_SECONDS
from ..base.errors import InvalidArgument, SandboxLost
from ..base.messages import Note, listed
from ..base.policy import narrow
from ..base.results import REPEATED, Artifact, Execution
from ..base.text import one_line
from ..languages.languages import Language
from ..languages.places import Places
from ..runs.hints import Printed, hint_of
from ..runs.requests import (
    RunRequest,
    checked_code,
    checked_stdin,
    checked_variables,
    notes_on_text,
    without_fence,
    without_notebook_lines,
)
from ..runs.verdict import excerpt, exit_code_of, finished, notes_of, status_of
from .ask import Ask, Checked
from .installing import Installing
from .output import WholeOutputs
from .overviews import Overviews
from .parts import Parts
from .preparation import Preparation
from .sessions import Sessions
from .views import Views
from .work import Result, Work

_PATHS_SHOWN, _PATH_SHOWN = 3, 100
"""Files outside of the working directory that a note names, and how many characters of each path."""


class Running:
    """Does the work of all callers."""

    def __init__(
        self,
        parts: Parts,
        sessions: Sessions,
        preparation: Preparation,
        installing: Installing,
        views: Views,
        overviews: Overviews,
    ) -> None:
        self._limits = parts.profile.limits
        self._policy = parts.profile.policy()
        self._opened = parts.profile.views
        self._languages = parts.languages
        self._store = parts.store
        self._checker = parts.checker
        self._audit = parts.audit
        self._sessions = sessions
        self._preparation = preparation
        self._installing = installing
        self._views = views
        self._overviews = overviews
        self._outputs = WholeOutputs()

    async def check(self, ask: Ask) -> Checked:
        """Raises every request error of an ask that does not depend on its session, before anything is opened."""
        ask.check_types()
        chosen = self._languages[ask.language]
        lower = ask.limits_of_sandbox
        # Those of a session that is open are refused with it; here, only their names can be wrong.
        narrow(self._policy, dict.fromkeys(lower) if ask.session_id else lower)
        policy = narrow(self._policy, ask.limits_of_run)
        if ask.code is None:
            if not ask.libraries:
                raise InvalidArgument("libraries must name at least one library, such as requests or numpy==2.1")
            libraries, notes = self._installing.check(chosen, ask.libraries)
            return Checked(replace(ask, libraries=libraries), chosen, None, notes)
        code = checked_code(without_fence(ask.code, chosen, self._languages), self._limits.code)
        values = checked_variables(ask.variables or {}, chosen)
        given = checked_stdin(ask.stdin, chosen)
        libraries, notes = self._installing.check(chosen, ask.libraries)
        notes += notes_on_text(code=code, stdin=given, variables=values)
        notes += await self._judge(chosen, code)
        instead = without_notebook_lines(code, chosen)
        if instead is not None:
            notes += [note for note in await self._judge(chosen, instead) if note not in notes]
        request = RunRequest(
            code,
            timeout=policy.timeout,
            output=policy.output,
            grace=policy.grace,
            variables=values,
            stdin=given,
            instead=instead,
            last=not ask.keep_session,
        )
        return Checked(replace(ask, libraries=libraries), chosen, request, notes)

    async def do(self, work: Work) -> Result:
        """Installs what was asked for, then runs the code. If cancelled, interrupts the code and keeps the session."""
        ask, chosen, session, request, policy = work.ask, work.language, work.session, work.request, work.policy
        notes, tell = [*work.notes], work.progress if work.heard else None
        async with self._sessions.use(work):
            work.state = "preparing"
            places = await self._preparation.places(chosen, tell)
            sandbox = await self._preparation.sandbox(session, chosen, tell)
            if ask.libraries or request is None:
                work.state = "installing"
                installation = await self._installing.into(session, sandbox, places, ask.libraries, tell)
                notes += installation.notes
                if request is None:
                    return replace(installation, notes=tuple(notes))
            with sandbox.patience.shared():
                notes += await self._views.show(sandbox)
            work.state = "running"
            ran = await session.run(places, request, policy)
            work.state, outcome = "saving", ran.outcome
            work.report = outcome.report
            status = status_of(outcome, ran.usage, ran.fullness, policy)
            if outcome.ending == "lost" and status == "error":
                raise await sandbox.loss() or SandboxLost(
                    "the sandbox ended while the code ran, and what the code did is unknown", "run again to start fresh"
                )
            outputs = await self._outputs.of(outcome, for_model=ask.for_model)
            most = self._limits.shown
            long = outputs.long(session.runs, min(most, REPEATED) if ask.for_model else most)
            whole = finished(status, outcome)
            with sandbox.patience.shared(COPY_SECONDS):
                artifacts, left_out = await self._store.collect(session, ran.sandbox, outcome, long)
                if ran.sandbox is not None and ask.keep_session:
                    left_out += await self._outputs.leave(ran.sandbox, long)
                left_out += await self._views.save(ran.sandbox, whole=whole, last=not ask.keep_session)
            overview = None
            if ran.sandbox is not None and ask.for_model:
                overview = await self._overviews.of_run(session, ran.sandbox, artifacts)
        if ran.sandbox is None and session.put_aside is not None and not session.closed:
            notes.append(Note("returns", "the next run in the session returns to its last state that was put aside"))
        if places.lacking:
            notes.append(_note_of_lacking(chosen, places))
        work.news = (ran.loss, ran.ended, ran.returned)
        if ran.returned is not None:
            notes = [*ran.returned.notes, *notes]
        if ran.loss is not None:
            notes.append(ran.loss.note)
        # The notes that explain the status come first.
        explanations = notes_of(outcome, ran.usage, ran.fullness, status, policy, request)
        if status in ("ok", "error", "timeout") and outcome.stderr:
            explanations += self._hints(work, request, outcome.stderr, sandbox, failed=status != "ok")
        if ran.sandbox is not None:
            explanations += _notes_on_outside(ran.outside, artifacts)
        return Execution(
            status=status,
            exit_code=exit_code_of(outcome),
            stdout=excerpt(outputs.shown["stdout"], most),
            stderr=excerpt(outputs.shown["stderr"], most),
            result=outcome.report.result if outcome.report is not None else None,
            duration=outcome.duration,
            session_id=session.id,
            session_state="ended" if session.closed else "kept" if session.has_sandbox and not ran.fresh else "fresh",
            artifacts=tuple(artifacts),
            notes=(*explanations, *notes, *left_out),
            overview=overview,
        )

    def _hints(self, work: Work, request: RunRequest, stderr: bytes, sandbox: Sandbox, *, failed: bool) -> list[Note]:
        """What an error that the code printed means here; at most one."""
        printed = Printed(
            stderr,
            [work.language, *(self._languages[name] for name in work.language.handler.companions)],
            work.policy.network,
            {view: view in sandbox.mounted for view in self._opened},
            others=self._languages.values(),
            given=bool(request.stdin),
            failed=failed,
        )
        hint = hint_of(printed, self._installing.check_hint)
        return [hint] if hint is not None else []

    async def _judge(self, language: Language, code: str) -> list[Note]:
        """The warnings of the rules; none for empty code."""
        if not code:
            return []
        with self._audit.denials("code.refused", language=language.name):
            return await self._checker.check(language, checked_code(code, self._limits.code))


def _note_of_lacking(language: Language, places: Places) -> Note:
    cause = f"{language.name} has none of the libraries that belong to it, since they could not be prepared"
    step = "only the operator can fix this, and finds the reason with `llm-sandbox-mcp doctor`"
    return Note("no_libraries", cause, step, language=language.name, reason=places.lacking)


def _notes_on_outside(paths: Sequence[str], artifacts: Sequence[Artifact]) -> list[Note]:
    """A note if a run left files outside of the working directory, which nobody gets, and not in it as well."""
    names = {posixpath.basename(artifact.name) for artifact in artifacts}
    left = sorted(path for path in paths if posixpath.basename(path) not in names)
    if not left:
        return []
    stay, them = ("stays", "it") if len(left) == 1 else ("stay", "them")
    cause = f"{one_line(listed((path[:_PATH_SHOWN] for path in left), _PATHS_SHOWN))} {stay} in the sandbox"
    step = f"save {them} in the working directory to get {them} back"
    return [Note("files_outside", cause, step, number=len(left))]
