"""The use cases: execute, install, manage, and `files`. Everything a caller can do, in any transport's words."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import anyio

from ..audit import Audit
from ..backends.base import Backend, Sandbox
from ..errors import InvalidArgument, PolicyDenied, SandboxError, SandboxLost, UnknownSession, quoted
from ..files.artifacts import ArtifactStore
from ..languages import Language, Languages
from ..libraries.installing import Installer
from ..libraries.preparing import Preparer
from ..messages import Note, Step
from ..places import Places
from ..policy import OF_RUN, narrow
from ..pool.pool import Pool
from ..profile import Profile
from ..results import (
    DEFAULT_TIMEOUT,
    Execution,
    Installation,
    Library,
    OnOutput,
    OnProgress,
    PoolStatistics,
    SessionInfo,
)
from ..rules.checking import Checker, Finding, Unready
from ..rules.section import Rule
from ..runs.requests import readable, sendable
from ..runs.verdict import exit_code_of, notes_of, shown, status_of, told_of
from ..sessions.session import Session, Sessions
from .describing import Describer
from .files import Files

_log = logging.getLogger(__name__)


class Service:
    """What one server offers. Made by `wiring.open_service`."""

    def __init__(
        self,
        profile: Profile,
        languages: Languages,
        backend: Backend,
        pool: Pool,
        sessions: Sessions,
        store: ArtifactStore,
        preparer: Preparer,
        installer: Installer,
        checker: Checker,
        audit: Audit,
    ) -> None:
        self.profile = profile
        self.languages = languages
        self.backend = backend
        self.files = Files(profile, sessions, store)
        self._policy = profile.policy()
        self._pool = pool
        self._serving = False
        self._sessions = sessions
        self._store = store
        self._preparer = preparer
        self._installer = installer
        self._checker = checker
        self._audit = audit
        self._describer = Describer(profile, pool, preparer)

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules in force for code."""
        return self._checker.rules

    async def findings(self, code: str, language: str = "python") -> Sequence[Finding]:
        """What the rules find in code, which is not run; `PolicyDenied` where it cannot be judged."""
        return await self._checker.find(self.languages[language], readable(code, self.profile.limits.code)[0])

    async def unjudged(self) -> Mapping[str, Unready]:
        """The languages whose code is refused because the rules cannot judge it here."""
        return await self._checker.unready()

    async def execute(
        self,
        code: str,
        *,
        language: str = "python",
        session_id: str = "",
        libraries: Sequence[str] = (),
        timeout: float | None = None,
        variables: Mapping[str, object] | None = None,
        limits: Mapping[str, float] | None = None,
        keep_session: bool = True,
        on_output: OnOutput | None = None,
        on_progress: OnProgress | None = None,
        tell: bool = False,
        last: bool = False,
        judged: str | None = None,
    ) -> Execution:
        """Runs code in a session, opened where none is named; `libraries` are installed into it first.

        `timeout` is in seconds; left out, it is 30 or the profile's limit, whichever is less. `limits` lowers others,
        by the names of `Policy` and in its units: those of a run for this one, those of a sandbox for a new session.
        `tell` asks for `Execution.told`, in languages whose handler says that they tell. `last` is of who refreshes the
        session next: the run has what its interpreter does at its end, where the handler says that it does something.
        `judged` is what the rules look at in place of the code: what a program of ours was given and wraps, or nothing.
        Every request error is raised before anything starts. Cancelled, it interrupts the code and keeps the session.
        """
        chosen = self.languages[language]
        code, notes = readable(code, self.profile.limits.code)
        of_run = {name: value for name, value in (limits or {}).items() if name in OF_RUN}
        if timeout is not None:
            of_run["timeout"] = timeout
        of_sandbox = {name: value for name, value in (limits or {}).items() if name not in OF_RUN}
        narrow(self._policy, of_run)
        values = sendable(variables or {}, chosen)
        if tell and not (chosen.handler.runner and chosen.handler.runner.tells):
            raise InvalidArgument(f"{chosen.name} does not tell what names stand for; print what is wanted")
        with self._audited("libraries.refused", chosen):
            self._installer.check(chosen, libraries)
        with self._audited("code.refused", chosen):
            notes += await self._judge(chosen, code if judged is None else judged)
        session = self._session(session_id, chosen, of_sandbox)
        policy = narrow(session.policy, of_run, "the session's")
        seconds = min(DEFAULT_TIMEOUT, policy.timeout) if timeout is None else policy.timeout
        try:
            async with session.exclusive():
                places = await self._places(chosen, on_progress)
                sandbox = await self._sandbox(session, chosen, on_progress)
                if libraries:
                    await self._install(session, sandbox, places, libraries, on_progress)
                ran = await session.run(
                    places,
                    code,
                    variables=values,
                    timeout=seconds,
                    limits=policy,
                    on_output=on_output,
                    tell=tell,
                    last=last and chosen.handler.runner is not None and chosen.handler.runner.ends,
                )
                outcome = ran.outcome
                if ran.loss is not None:
                    notes.append(Note("started_fresh", f"started fresh: since an earlier run {ran.loss}"))
                status = status_of(outcome, ran.usage, ran.fullness, policy)
                if outcome.ending == "lost" and status == "error":
                    raise await sandbox.loss() or SandboxLost(
                        "the sandbox ended while the code ran; what it did is unknown; run again to start fresh"
                    )
                # First what its status means.
                notes = notes_of(outcome, ran.usage, ran.fullness, status, policy, seconds) + notes
                left = sandbox if session.loss is None else None
                artifacts, left_out = await self._store.collect(
                    session.id, session.runs, left, outcome, self.profile.limits.shown
                )
                fresh = session.loss is not None or not outcome.alive
        except BaseException:
            if not keep_session or (not session_id and not session.runs):
                self._close(session)
            raise
        if not keep_session:
            self._close(session)
        return Execution(
            status=status,
            exit_code=exit_code_of(outcome),
            stdout=shown(outcome.stdout, self.profile.limits.shown),
            stderr=shown(outcome.stderr, self.profile.limits.shown),
            result=outcome.report.result if outcome.report is not None else None,
            duration=outcome.duration,
            session_id=session.id,
            session_state="ended" if session.closed else "fresh" if fresh else "kept",
            artifacts=tuple(artifacts),
            notes=(*notes, *left_out),
            told=told_of(outcome),
        )

    async def install(
        self,
        libraries: Sequence[str],
        *,
        language: str = "python",
        session_id: str = "",
        on_progress: OnProgress | None = None,
    ) -> Installation:
        """Installs libraries into a session, opened where none is named; `InstallFailed` has the tool's last lines."""
        chosen = self.languages[language]
        if not libraries:
            raise InvalidArgument("libraries must name at least one library, such as requests or numpy==2.1")
        with self._audited("libraries.refused", chosen):
            self._installer.check(chosen, libraries)
        session = self._session(session_id, chosen)
        try:
            async with session.exclusive():
                places = await self._places(chosen, on_progress)
                sandbox = await self._sandbox(session, chosen, on_progress)
                installed = await self._install(session, sandbox, places, libraries, on_progress)
        except BaseException:
            if not session_id:
                self._close(session)
            raise
        return Installation(session.id, installed)

    def open_session(self, language: str = "python", limits: Mapping[str, float] | None = None) -> str:
        """Opens an empty session, such as for files that the first run in the language needs, and returns its id.

        `limits` lowers those of all its runs, and of its sandbox.
        """
        return self._session("", self.languages[language], limits).id

    def list_sessions(self) -> tuple[SessionInfo, ...]:
        """All live sessions, oldest first."""
        return self._sessions.infos()

    async def interrupt_session(self, session_id: str) -> None:
        """Stops what runs in a session; its state is kept if the code answers the interrupt."""
        self._sessions.get(session_id).stop()

    async def clear_session(self, session_id: str) -> None:
        """Drops the artifacts of a session, also of one that ended, and empties its folder of figures; state stays."""
        try:
            session = self._sessions.get(session_id)
        except UnknownSession:
            if not self._store.of_session(session_id):
                raise
            await self._store.clear(session_id)
            return
        async with session.exclusive():
            await session.clear_figures()
            await self._store.clear(session_id)

    async def refresh_session(self, session_id: str, language: str = "python", *, pause: float = 0.0) -> None:
        """Has a sandbox up, and in it an interpreter that has run nothing yet; files and libraries stay.

        The next run finds it waiting, also where this waits for `pause` seconds first. Raises what a run would that
        cannot start.
        """
        chosen = self.languages[language]
        session = self._sessions.get(session_id)
        async with session.exclusive():
            if pause:
                await anyio.sleep(pause)
            await session.refresh(await self._places(chosen))

    async def reset_session(self, session_id: str) -> None:
        """Drops all state of a session, stopping what runs in it; its id stays."""
        session = self._sessions.get(session_id)
        session.stop()
        async with session.exclusive():
            session.drop("it was reset")
            session.loss = None

    async def close_session(self, session_id: str) -> None:
        """Ends a session; its artifacts stay."""
        self._sessions.close(session_id)

    async def commit(self, session_id: str, image: str) -> str:
        """Makes an image of a session's files and libraries, a template, and returns its name with its tag.

        New sandboxes are made of it where the profile names it in `containers.images`; the session goes on as it is,
        and the image stays when it ends. Variables, figures, /tmp and processes are not in it. Nothing is committed
        but by this call, which callers of tools cannot make. Raises `InvalidArgument` where the engine has no images,
        or for a name that no image can have or that an image has which is no template, `CapacityReached` where there
        are as many templates as `containers.templates` allows, and `StartFailed`.
        """
        backend = await self.backend.chosen()
        if backend.images is None:
            raise InvalidArgument(
                f"the backend {backend.name} has no images; name docker or podman in backend.name of the profile"
            )
        session = self._sessions.get(session_id)
        async with session.exclusive():
            if not session.has_sandbox:
                raise InvalidArgument(
                    f"session {quoted(session_id, 40)} has no sandbox that could be committed; run code in it first"
                )
            return await backend.images.commit(await session.sandbox(), image)

    async def describe_language(self, name: str) -> dict[str, object]:
        """What a model needs to know to write code in a language here."""
        return await self._describer.describe(self.languages[name])

    async def environment(self, session_id: str, language: str) -> Mapping[str, str]:
        """What processes of a language have in their environment, such as the way to its programs and libraries."""
        chosen = self.languages[language]
        session = self._sessions.get(session_id)
        async with session.exclusive():
            sandbox = await session.sandbox()
        return (await self._places(chosen)).env(sandbox.path)

    def pool(self) -> PoolStatistics:
        """How many sandboxes there are, and what for."""
        return self._pool.statistics()

    async def pool_until(self, condition: Callable[[PoolStatistics], bool]) -> None:
        """Returns once the pool is as the condition says, such as filled after `warm`."""
        await self._pool.until(condition)

    async def warm(self, languages: Iterable[str] | None = None) -> None:
        """Clears up after servers that are gone, prepares the environments of languages, all of them unless named, and
        fills the pool; from now on it is filled for each language that is used.

        What fails here fails again, and is told, when it is needed.
        """
        with suppress(SandboxError):
            await self.backend.sweep()
        self._serving = True
        promised, room = self.profile.sessions.max, self.backend.tightest
        if room.sandboxes < promised:
            _log.warning(
                "sessions.max is %d, and there is room for %d sandboxes (%s); %s",
                *(promised, room.sandboxes, room.of, room.step),
            )
        for language in [self.languages[name] for name in (self.languages if languages is None else languages)]:
            with suppress(SandboxError):
                await self._places(language)
        await self._preparer.prune()

    @contextmanager
    def _audited(self, event: str, language: Language) -> Iterator[None]:
        """Has what the profile denies in the audit log; without the session, whose id is all it takes to use it."""
        try:
            yield
        except PolicyDenied as denied:
            self._audit.note(event, language=language.name, reason=str(denied))
            raise

    async def _judge(self, language: Language, code: str) -> list[Note]:
        """What the rules warn of; nothing is said of no code."""
        return await self._checker.check(language, readable(code, self.profile.limits.code)[0]) if code else []

    async def _places(self, language: Language, on_progress: OnProgress | None = None) -> Places:
        """Where the language finds its things; from when they are prepared on, a server keeps sandboxes warm for it."""
        places = await self._preparer.places(language, on_progress)
        if self._serving:
            self._pool.keep_warm(language.name, self._policy)
        return places

    async def _sandbox(self, session: Session, language: Language, on_progress: OnProgress | None) -> Sandbox:
        """The session's sandbox; where one has to be made, tells how its image comes to be, where that takes long."""
        if on_progress is not None and not session.has_sandbox:
            await self._preparer.image(language, on_progress)
        return await session.sandbox(language.name)

    async def _install(
        self,
        session: Session,
        sandbox: Sandbox,
        places: Places,
        libraries: Sequence[str],
        on_progress: OnProgress | None,
    ) -> tuple[Library, ...]:
        """Installs into a session; where the profile lets only some libraries in, a failure leaves nothing of it."""
        try:
            installed = await self._installer.install(sandbox, places, libraries, on_progress)
        except BaseException:
            if self._installer.ruled(places.language):
                session.drop("an installation failed that may have brought in what the profile denies")
            raise
        session.use_libraries(places.language.name, installed)
        return installed

    def _session(self, session_id: str, language: Language, lower: Mapping[str, float] | None = None) -> Session:
        """The session of that id, or a new one with these limits lowered."""
        if not session_id:
            return self._sessions.open(language.name, narrow(self._policy, lower or {}))
        if lower:
            limits = ", ".join(sorted(lower))
            raise InvalidArgument(f"{limits} can be lowered for a new session only", Step.OPEN_SESSION)
        return self._sessions.get(session_id)

    def _close(self, session: Session) -> None:
        if not session.closed:
            self._sessions.close(session.id)
