"""The use cases: execute, install, copy, artifacts, manage. Everything a caller can do, in any transport's words."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from . import hostfiles
from .artifacts import ArtifactStore, describe, inner_path
from .backends import open_backend
from .backends.archive import Member
from .backends.base import WORKDIR, Backend, Surroundings
from .describing import Describer
from .errors import BadPath, InvalidArgument, SandboxError, SandboxLost, UnknownSession, quoted
from .folders import HostFolders, host_folders
from .languages import Languages, load_languages
from .libraries.installing import Installer
from .libraries.preparing import Preparer
from .media import mime_type
from .policy import narrow
from .pool import Pool
from .profile import Profile
from .requests import readable, sendable
from .results import DEFAULT_TIMEOUT, Artifact, Execution, Installation, OnOutput, OnProgress, SessionInfo
from .runtime import open_runtime
from .sessions import Session, Sessions
from .tasks import open_tasks
from .units import format_size
from .verdict import exit_code_of, notes_of, shown, status_of


class Service:
    """What one server offers. Made by `open_service`."""

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
    ) -> None:
        self.profile = profile
        self.languages = languages
        self.backend = backend
        self._policy = profile.limits.policy()
        self._sessions = sessions
        self._store = store
        self._preparer = preparer
        self._installer = installer
        self._describer = Describer(profile, pool, preparer)

    async def execute(
        self,
        code: str,
        *,
        language: str = "python",
        session_id: str = "",
        libraries: Sequence[str] = (),
        timeout: float | None = None,
        variables: Mapping[str, object] | None = None,
        keep_session: bool = True,
        on_output: OnOutput | None = None,
        on_progress: OnProgress | None = None,
    ) -> Execution:
        """Runs code in a session, opened where none is named; `libraries` are installed into it first.

        `timeout` is in seconds; left out, it is 30 or the profile's limit, whichever is less.
        Every request error is raised before anything starts. Cancelled, it interrupts the code and keeps the session.
        """
        chosen = self.languages[language]
        code, notes = readable(code, self.profile.limits.code)
        limits = narrow(self._policy, timeout=timeout)
        seconds = min(DEFAULT_TIMEOUT, limits.timeout) if timeout is None else timeout
        values = sendable(variables or {}, chosen)
        self._installer.check(chosen, libraries)
        session = self._session(session_id)
        try:
            async with session.exclusive():
                places = await self._preparer.places(chosen, on_progress)
                sandbox = await session.sandbox()
                if libraries:
                    installed = await self._installer.install(sandbox, places, libraries, on_progress)
                    session.use_libraries(chosen.name, installed)
                if session.loss is not None:
                    notes.append(f"started fresh: since an earlier run {session.loss}")
                    session.loss = None
                outcome, usage = await session.run(places, code, variables=values, timeout=seconds, on_output=on_output)
                status = status_of(outcome, usage)
                if outcome.ending == "lost" and status == "error":
                    raise SandboxLost(
                        "the sandbox ended while the code ran; what it did is unknown; run again to start fresh"
                    )
                notes += notes_of(outcome, usage, status, limits, seconds)
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
        self._installer.check(chosen, libraries)
        session = self._session(session_id)
        try:
            async with session.exclusive():
                places = await self._preparer.places(chosen, on_progress)
                sandbox = await session.sandbox()
                installed = await self._installer.install(sandbox, places, libraries, on_progress)
                session.use_libraries(chosen.name, installed)
        except BaseException:
            if not session_id:
                self._close(session)
            raise
        return Installation(session.id, installed)

    async def copy_in(self, session_id: str, path: str, data: bytes) -> Artifact:
        """Writes a file below the working directory of a session."""

        async def content() -> AsyncIterator[bytes]:
            yield data

        return await self._copy_in(session_id, path, len(data), content())

    async def copy_in_from_host(self, session_id: str, path: str, host_path: str) -> Artifact:
        """Copies a file of this machine, below one of the profile's roots, into a session."""
        async with hostfiles.open_source(host_path, self.profile.files.roots) as (size, content):
            return await self._copy_in(session_id, path, size, content)

    async def copy_out(self, session_id: str, path: str) -> Artifact:
        """Takes a file out of a session into its artifacts."""
        name, content = await self._copy_out(session_id, path)
        return await self._store.put(session_id, name, content)

    async def copy_out_to_host(self, session_id: str, path: str, host_path: str) -> Artifact:
        """Copies a file of a session to this machine, below one of the profile's roots."""
        target = hostfiles.checked_target(host_path, self.profile.files.roots)
        name, content = await self._copy_out(session_id, path)
        await hostfiles.write(target, content)
        return describe(name, content)

    def artifacts(self, session_id: str) -> tuple[Artifact, ...]:
        """What runs of a session left behind; of a session that ended too, while the store has it."""
        kept = self._store.of_session(session_id)
        if not kept:
            self._sessions.get(session_id)
        return kept

    async def read_artifact(self, session_id: str, name: str) -> tuple[Artifact, bytes]:
        """An artifact and its content."""
        self.artifacts(session_id)
        return await self._store.read(session_id, name)

    def on_artifacts_changed(self, listener: Callable[[str, tuple[str, ...]], None]) -> None:
        """Calls back with session id and names whenever artifacts change."""
        self._store.listen(listener)

    def open_session(self) -> str:
        """Opens an empty session, such as for files that the first run needs, and returns its id."""
        return self._sessions.open().id

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

    async def describe_language(self, name: str) -> dict[str, object]:
        """What a model needs to know to write code in a language here."""
        return await self._describer.describe(self.languages[name])

    async def warm(self) -> None:
        """Clears up after servers that are gone and prepares the environments of all languages.

        What fails here fails again, and is told, when it is needed.
        """
        await self.backend.sweep()
        for language in self.languages.values():
            with suppress(SandboxError):
                await self._preparer.places(language)

    def _session(self, session_id: str) -> Session:
        return self._sessions.get(session_id) if session_id else self._sessions.open()

    def _close(self, session: Session) -> None:
        if not session.closed:
            self._sessions.close(session.id)

    async def _copy_in(self, session_id: str, path: str, size: int, content: AsyncIterator[bytes]) -> Artifact:
        name = inner_path(path)
        if size > self.profile.limits.disk:
            raise BadPath(
                f"path {quoted(path)} has {format_size(size)}; the limit is {format_size(self.profile.limits.disk)}"
            )
        session = self._sessions.get(session_id)
        async with session.exclusive():
            await (await session.sandbox()).copy_in(name, size, content)
        return Artifact(name, mime_type(name), size)

    async def _copy_out(self, session_id: str, path: str) -> tuple[str, bytes]:
        name = inner_path(path)
        limit = self.profile.artifacts.file_size
        session = self._sessions.get(session_id)
        found: list[Member] = []

        async def take(member: Member) -> None:
            if member.name == name:
                found.append(member)

        async with session.exclusive():
            await (await session.sandbox()).copy_out(WORKDIR, [name], limit, take)
        if not found:
            raise BadPath(f"path {quoted(path)} is no regular file in {WORKDIR}; run code to list what is there")
        if found[0].size > limit:
            raise BadPath(f"path {quoted(path)} has {format_size(found[0].size)}; the limit is {format_size(limit)}")
        return name, bytes(found[0].content)


@asynccontextmanager
async def open_service(
    profile: Profile, folders: HostFolders | None = None, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Service]:
    """Opens everything a server needs, for as long as the scope; the engine starts beside it and is awaited when used.

    `environ` is the environment of package managers on the host: proxies, certificates; none of it reaches a sandbox.
    Raises `ProfileError` for a handler folder with a mistake or a folder that cannot be made.
    """
    folders = folders or host_folders(profile.embedded.cache, profile.embedded.runtime)
    languages = load_languages(profile.handlers.folders)
    profile.check_languages(languages)
    with open_runtime(folders.runtime) as runtime:
        surroundings = Surroundings(
            runtime=runtime.path,
            handlers={name: language.folder for name, language in languages.items()},
            environments=folders.cache / "environments",
            tools=folders.cache / "tools",
        )
        async with (
            open_backend(profile, surroundings) as backend,
            Preparer(profile, folders.cache, environ) as preparer,
            open_tasks() as owners,
            # Innermost: cancelling a group that others are inside of would replace their errors by the cancellation.
            open_tasks() as timers,
        ):
            pool = Pool(backend, owners)
            sessions = Sessions(pool, profile.sessions, profile.limits.policy(), timers)
            installer = Installer(profile, folders.cache)
            store = ArtifactStore(runtime.path / "artifacts", profile.artifacts)
            try:
                yield Service(profile, languages, backend, pool, sessions, store, preparer, installer)
            finally:
                sessions.close_all()
                timers.cancel_scope.cancel()
