"""The Python API: sandboxes for your own program, built from the same parts as the server.

async with Sandboxes() as sandboxes, sandboxes.session("python") as session:
    await session.run("x = 41")
    print((await session.run("x + 1")).result)
"""

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack, overload

import anyio
from anyio.abc import TaskGroup

from .aio.tasks import open_tasks
from .base.errors import InvalidArgument, UnknownSession
from .base.principal import USER
from .base.results import (
    Artifact,
    Execution,
    Library,
    OnOutput,
    OnProgress,
    Opened,
    PoolStatistics,
    SavedSession,
    StreamName,
)
from .host.folders import host_folders
from .profile.profile import Profile, load_profile
from .service import Service
from .service.ask import Ask, Options, only_options
from .service.work import Listener
from .wiring import open_service

# A program that has not configured logging does not get log lines, such as refusals, on standard error.
logging.getLogger(__package__).addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Printed:
    """A piece of output of the code, as it appeared."""

    stream: StreamName
    text: str


def named_profile(environ: Mapping[str, str] | None = None) -> str | None:
    """The profile that `LLM_SANDBOX_PROFILE` names, in `environ` or else in the environment of this process."""
    return (os.environ if environ is None else environ).get("LLM_SANDBOX_PROFILE") or None


class Sandboxes:
    """All sandboxes of a program; an async context manager that ends them when it exits.

    `profile` is a `Profile`, the path of one, or the name of an included one; if left out, it is the profile that
    `LLM_SANDBOX_PROFILE` names, or else the default. `environ` is used to find engines and package managers; it is the
    environment of the process unless given, and none of it reaches a sandbox. Entering raises `ProfileError`.
    """

    def __init__(
        self, profile: Profile | Path | str | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._profile = profile
        self._scope = AsyncExitStack()
        self._service: Service | None = None

    async def __aenter__(self) -> Self:
        profile = self._profile
        if not isinstance(profile, Profile):
            profile = load_profile(str(profile) if profile else named_profile(self._environ))
        server = profile.server
        folders = host_folders(server.cache, server.runtime, self._environ)
        self._service = await self._scope.enter_async_context(open_service(profile, folders, self._environ))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service = None
        await self._scope.__aexit__(kind, error, trace)

    @property
    def service(self) -> Service:
        """The use cases below this API, for features that it does not offer; `InvalidArgument` outside the scope."""
        if self._service is None:
            raise InvalidArgument("these sandboxes are not open", "use them inside `async with Sandboxes() as ...`")
        return self._service

    def session(self, language: str = "python", *, limits: Mapping[str, float] | None = None) -> "Session":
        """A session in its own sandbox, as an async context manager; `limits` lowers the limits of the profile."""
        return Session(self.service, language, limits=limits)

    @overload
    def open(self, name: str, *, on_progress: OnProgress | None = None) -> "Session": ...

    @overload
    def open(
        self, name: str, *, count: int, on_progress: OnProgress | None = None
    ) -> AbstractAsyncContextManager[list["Session"]]: ...

    def open(
        self, name: str, *, count: int | None = None, on_progress: OnProgress | None = None
    ) -> "Session | AbstractAsyncContextManager[list[Session]]":
        """A saved session as a new one, as an async context manager; its `opened` says what it has again.

        With `count`, a list of so many new sessions, opened side by side; either all are opened, or none. Entering
        raises `UnknownState`, `BadState` if it is damaged or does not fit the profile, and `CapacityReached` if there
        cannot be as many sessions (`sessions.max`).
        """
        service = self.service
        if count is None:
            return Session(service, "", lambda: service.states.open(USER, name, on_progress))
        return _open_many(service, name, count, on_progress)

    async def saved(self) -> tuple[SavedSession, ...]:
        """The saved sessions of this user, the latest first."""
        return await self.service.states.saved(USER)

    async def delete(self, name: str) -> None:
        """Deletes a saved session; `UnknownState` if there is none of that name."""
        await self.service.states.delete(USER, name)

    async def run(self, code: str, *, on_output: OnOutput | None = None, **options: Unpack[Options]) -> Execution:
        """Runs code in a sandbox that is destroyed afterwards; the options are those of `Session.run`."""
        only_options(options)
        ask = Ask(caller=USER, code=code, keep_session=False, **options)
        return await self.service.run(ask, Listener(on_output))

    async def warm(self, languages: Iterable[str] | None = None) -> None:
        """Cleans up after programs that are gone, prepares the libraries of these or all languages, and fills the pool;
        from now on, the pool is also kept filled for each language that is used."""
        await self.service.warm(languages)

    def pool(self) -> PoolStatistics:
        """How many sandboxes exist, and for which languages and images."""
        return self.service.pool()


@asynccontextmanager
async def _open_many(
    service: Service, name: str, count: int, on_progress: OnProgress | None
) -> AsyncIterator[list["Session"]]:
    opened = await service.states.open_many(USER, name, count, on_progress)
    async with AsyncExitStack() as scope:
        # Nothing here waits, so that none of them can be left over.
        yield [await scope.enter_async_context(Session(service, one.language, opened=one)) for one in opened]


class Session:
    """One sandbox with its state, closed at the end of the scope. One run at a time: a second waits for the first."""

    def __init__(
        self,
        service: Service,
        language: str,
        open_: Callable[[], Awaitable[Opened]] | None = None,
        *,
        opened: Opened | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> None:
        self._service = service
        self.language = language
        self._open = open_
        self._limits = limits
        self._scope = open_tasks()
        self._tasks: TaskGroup
        self.id = opened.session_id if opened is not None else ""
        """The session id that tools use; empty until the session is open."""
        self.opened = opened
        """What it has of the session that was saved or branched; None for any other session."""

    async def __aenter__(self) -> Self:
        if self._open is not None:
            self.opened = await self._open()
            self.id, self.language = self.opened.session_id, self.opened.language
        elif self.opened is None:
            self.id = self._service.sessions.open(USER, self.language, self._limits)
        self._tasks = await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._scope.__aexit__(kind, error, trace)
        finally:
            await self.close()

    async def run(self, code: str, *, on_output: OnOutput | None = None, **options: Unpack[Options]) -> Execution:
        """Runs code with the variables and files that earlier runs left.

        Options: `language`, by default that of the session; `libraries`, a list of names to be installed first;
        `timeout` in seconds; `variables`, values of JSON by their names; `stdin`, text; `limits`, with the names and
        units of `Policy`. Code that fails, or is stopped, is a result; a reason why it could not run is a
        `SandboxError`.
        """
        return await self._service.run(self._ask(code, options), Listener(on_output))

    def stream(self, code: str, **options: Unpack[Options]) -> AsyncGenerator[Printed | Execution, None]:
        """Runs code and yields its output as it appears, and the `Execution` last; the options are those of `run`.

        Leaving the loop early interrupts the code; a slow loop slows the code down.
        """
        ask = self._ask(code, options)
        return self._follow(lambda on_output: self._service.run(ask, Listener(on_output)))

    def _ask(self, code: str | None, options: Options) -> Ask:
        only_options(options)
        if not self.id:
            raise InvalidArgument("this session is not open", "use it inside `async with ... as session`")
        given: Options = {**options, "language": options.get("language") or self.language}
        return Ask(caller=USER, code=code, session_id=self.id, **given)

    async def _follow(
        self, run: Callable[[OnOutput], Awaitable[Execution]]
    ) -> AsyncGenerator[Printed | Execution, None]:
        sender, receiver = anyio.create_memory_object_stream[Printed]()
        scope = anyio.CancelScope()
        ended: list[Execution | Exception] = []

        async def print_(stream: StreamName, text: str) -> None:
            await sender.send(Printed(stream, text))

        async def execute() -> None:
            with scope, sender:
                try:
                    ended.append(await run(print_))
                except Exception as error:  # it is raised in the loop of the caller
                    ended.append(error)

        self._tasks.start_soon(execute)
        try:
            with receiver:
                async for piece in receiver:
                    yield piece
            for one in ended:
                if isinstance(one, Exception):
                    raise one
                yield one
        finally:
            scope.cancel()

    async def install(
        self, *libraries: str, language: str = "", on_progress: OnProgress | None = None
    ) -> tuple[Library, ...]:
        """Installs libraries into the sandbox, and returns all that are installed there now.

        `InstallFailed` contains the last lines of the package manager. Notes are the last lines of progress: which
        libraries have another version now, and what only a restart lets code find.
        """
        ask = self._ask(None, {"libraries": libraries, "language": language})
        done = await self._service.install(ask, Listener(None, on_progress))
        if on_progress is not None:
            for note in done.notes:
                await on_progress(note)
        return done.libraries

    async def write(self, path: str, content: bytes | str, *, executable: bool = False) -> None:
        """Writes a file below the working directory; missing folders are created."""
        data = content.encode() if isinstance(content, str) else content
        await self._service.files.copy_in(await self._awake(), path, data, executable=executable)

    async def make_folder(self, path: str) -> None:
        """Creates a folder below the working directory, unless it exists."""
        await self._service.files.make_folder(await self._awake(), path)

    async def read(self, path: str) -> bytes:
        """The content of a file below the working directory; `BadPath` if it does not exist."""
        return await self._service.files.read(await self._awake(), path)

    async def pack(self, path: str = ".") -> bytes:
        """A file, a folder or all of the working directory as a tar archive; `UnknownFile` if it does not exist.

        `BadPath` if the archive has more than twice the bytes of `limits.disk`.
        """
        return await self._service.files.pack(await self._awake(), path)

    def artifacts(self) -> tuple[Artifact, ...]:
        """The files and figures that runs left behind."""
        return self._service.files.artifacts(self.id)

    async def artifact(self, name: str) -> bytes:
        """The content of one of the artifacts."""
        await self._service.keeping.bring_back(USER, self.id)
        _, content = await self._service.files.read_artifact(self.id, name)
        return content

    async def save(self, name: str, *, tmp: bool = False) -> SavedSession:
        """Saves variables, files, libraries and artifacts under a name, from which `Sandboxes.open` opens them again.

        A session that was saved under that name is replaced. `tmp`: also the files in /tmp. The result names what
        cannot be kept, such as open files.
        """
        return await self._service.states.save(USER, await self._awake(), name, tmp=tmp)

    def branch(self, *, on_progress: OnProgress | None = None) -> "Session":
        """A second session that starts where this one stands, as an async context manager."""

        async def open_() -> Opened:
            return await self._service.states.branch(USER, await self._awake(), on_progress)

        return Session(self._service, self.language, open_)

    async def interrupt(self) -> None:
        """Stops the code that runs; the state is kept if the code reacts to the interrupt."""
        await self._service.sessions.interrupt(await self._awake())

    async def refresh(self, *, pause: float = 0.0) -> None:
        """Makes sure that the sandbox runs, with an interpreter that has run no code yet; files and libraries are kept.

        It begins after `pause` seconds; meanwhile, other calls on the session wait for it.
        """
        await self._service.sessions.refresh(await self._awake(), self.language, pause=pause)

    async def close(self) -> None:
        """Closes the session; otherwise the end of its scope does."""
        with suppress(UnknownSession):  # it has expired already
            if not await self._service.keeping.discard(USER, self.id):
                await self._service.sessions.close(self.id)

    async def clear(self) -> None:
        """Deletes the files and figures that runs left behind; state is kept."""
        await self._service.sessions.clear(await self._awake())

    async def restart(self) -> None:
        """Stops the code that runs, and ends the interpreters; files, libraries and other processes are kept."""
        await self._service.sessions.restart(await self._awake())

    async def reset(self) -> None:
        """Stops the code that runs, and drops all state."""
        await self._service.sessions.reset(await self._awake())

    async def _awake(self) -> str:
        """Its id, once it is live again if it was put aside."""
        await self._service.keeping.wake(USER, self.id)
        return self.id
