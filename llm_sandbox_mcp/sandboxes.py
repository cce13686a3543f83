"""The Python API: sandboxes for a program of one's own, with the same parts that the server is made of.

async with Sandboxes() as sandboxes, sandboxes.session("python") as session:
    await session.run("x = 41")
    print((await session.run("x + 1")).result)
"""

import logging
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from .errors import InvalidArgument, UnknownSession
from .folders import host_folders
from .profile import Profile, load_profile
from .results import Artifact, Execution, Library, OnOutput, OnProgress, PoolStatistics, StreamName
from .service import Service
from .tasks import open_tasks
from .wiring import open_service

# A program that has no use for what is noted, such as refusals, does not get it on its standard error.
logging.getLogger(__package__).addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Printed:
    """A piece of what code printed, as it appeared."""

    stream: StreamName
    text: str


def named_profile(environ: Mapping[str, str] | None = None) -> str | None:
    """The profile that `LLM_SANDBOX_PROFILE` names, in the process's own environment unless another is given."""
    return (os.environ if environ is None else environ).get("LLM_SANDBOX_PROFILE") or None


class Sandboxes:
    """All sandboxes of a program; an async context manager, whose end is theirs.

    `profile` is a `Profile`, the path of one, or the name of one that comes along; left out, it is the one that
    `LLM_SANDBOX_PROFILE` names, else the default. `environ` says where engines and package managers are and is the
    process's own, unless given; none of it reaches a sandbox. Entering raises `ProfileError`.
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
        folders = host_folders(profile.server.cache, profile.server.runtime, self._environ)
        self._service = await self._scope.enter_async_context(open_service(profile, folders, self._environ))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service = None
        await self._scope.__aexit__(kind, error, trace)

    @property
    def service(self) -> Service:
        """The use cases below, for what is not offered here; `InvalidArgument` outside of the scope."""
        if self._service is None:
            raise InvalidArgument("these sandboxes are not open; use them inside of `async with Sandboxes() as ...`")
        return self._service

    def session(self, language: str = "python", *, limits: Mapping[str, float] | None = None) -> "Session":
        """A session in a sandbox of its own, as an async context manager; `limits` lowers those of the profile."""
        return Session(self.service, language, limits)

    async def run(
        self,
        code: str,
        *,
        language: str = "python",
        libraries: Sequence[str] = (),
        timeout: float | None = None,
        variables: Mapping[str, object] | None = None,
        limits: Mapping[str, float] | None = None,
        on_output: OnOutput | None = None,
    ) -> Execution:
        """Runs code in a sandbox that is gone afterwards; the arguments are those of `Session.run`."""
        return await self.service.execute(
            code,
            language=language,
            libraries=libraries,
            timeout=timeout,
            variables=variables,
            limits=limits,
            keep_session=False,
            on_output=on_output,
        )

    async def warm(self, languages: Iterable[str] | None = None) -> None:
        """Clears up after programs that are gone, prepares the libraries of languages, all of them unless named, and
        fills the pool; from now on it is filled for each language that is used."""
        await self.service.warm(languages)

    def pool(self) -> PoolStatistics:
        """How many sandboxes there are, and what for."""
        return self.service.pool()


class Session:
    """One sandbox with its state, closed at the end of the scope. One run at a time; a second waits for the first."""

    def __init__(self, service: Service, language: str, limits: Mapping[str, float] | None) -> None:
        self._service = service
        self.language = language
        self._limits = limits
        self._scope = open_tasks()
        self._tasks: TaskGroup
        self.id = ""
        """What tools call it by; empty until the session is open."""

    async def __aenter__(self) -> Self:
        self.id = self._service.sessions.open(self.language, self._limits)
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

    async def run(
        self,
        code: str,
        *,
        language: str = "",
        libraries: Sequence[str] = (),
        timeout: float | None = None,
        variables: Mapping[str, object] | None = None,
        limits: Mapping[str, float] | None = None,
        on_output: OnOutput | None = None,
        last: bool = False,
        judged: str | None = None,
    ) -> Execution:
        """Runs code; what earlier runs left is there.

        `libraries` are installed first, `variables` set in languages that take them. `timeout` is in seconds; left out,
        it is 30, or what the profile allows. `limits` lowers those of this run, by the names and in the units of
        `Policy`. `last` says that a refresh follows: the run has what its interpreter does at its end, such as to wait
        for threads. `judged` is what the rules look at in place of the code, for a program that wraps what it is given.
        Code that fails, or is stopped, is a result; what kept it from running is a `SandboxError`.
        """
        return await self._service.execute(
            code,
            language=language or self.language,
            session_id=self.id,
            libraries=libraries,
            timeout=timeout,
            variables=variables,
            limits=limits,
            on_output=on_output,
            last=last,
            judged=judged,
        )

    async def stream(
        self,
        code: str,
        *,
        language: str = "",
        libraries: Sequence[str] = (),
        timeout: float | None = None,
        variables: Mapping[str, object] | None = None,
        limits: Mapping[str, float] | None = None,
        last: bool = False,
        judged: str | None = None,
    ) -> AsyncGenerator[Printed | Execution, None]:
        """Runs code and yields what it prints, as it appears, and the `Execution` last.

        Who leaves the loop early interrupts the code; who is slow slows it down.
        """
        sender, receiver = anyio.create_memory_object_stream[Printed]()
        scope = anyio.CancelScope()
        ended: list[Execution | Exception] = []

        async def print_(stream: StreamName, text: str) -> None:
            await sender.send(Printed(stream, text))

        async def execute() -> None:
            with scope, sender:
                try:
                    ended.append(
                        await self.run(
                            code,
                            language=language,
                            libraries=libraries,
                            timeout=timeout,
                            variables=variables,
                            limits=limits,
                            on_output=print_,
                            last=last,
                            judged=judged,
                        )
                    )
                except Exception as error:  # raised where the loop is
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
        """Installs libraries into the sandbox, and returns all that are there; `InstallFailed` has the tool's words."""
        done = await self._service.install(
            libraries, language=language or self.language, session_id=self.id, on_progress=on_progress
        )
        return done.libraries

    async def write(self, path: str, content: bytes | str, *, executable: bool = False) -> None:
        """Writes a file below the working directory, its folders made as needed."""
        data = content.encode() if isinstance(content, str) else content
        await self._service.files.copy_in(self.id, path, data, executable=executable)

    async def make_folder(self, path: str) -> None:
        """Makes a folder below the working directory, unless it is there."""
        await self._service.files.make_folder(self.id, path)

    async def read(self, path: str) -> bytes:
        """The content of a file below the working directory; `BadPath` where there is none."""
        return await self._service.files.read(self.id, path)

    async def pack(self, path: str = ".") -> bytes:
        """A file, a folder or all of the working directory as a tar archive; `UnknownFile` where there is none.

        One of more than twice `limits.disk` is a `BadPath`.
        """
        return await self._service.files.pack(self.id, path)

    def artifacts(self) -> tuple[Artifact, ...]:
        """The files and figures that runs left behind."""
        return self._service.files.artifacts(self.id)

    async def artifact(self, name: str) -> bytes:
        """The content of one of them."""
        _, content = await self._service.files.read_artifact(self.id, name)
        return content

    async def interrupt(self) -> None:
        """Stops what runs; its state is kept if the code answers the interrupt."""
        await self._service.sessions.interrupt(self.id)

    async def refresh(self, *, pause: float = 0.0) -> None:
        """Has the sandbox up, and in it an interpreter that has run nothing yet; files and libraries stay.

        It begins after `pause` seconds; what is asked of the session meanwhile waits for it.
        """
        await self._service.sessions.refresh(self.id, self.language, pause=pause)

    async def close(self) -> None:
        """Ends it, which its scope does at the latest."""
        with suppress(UnknownSession):  # it had expired
            await self._service.sessions.close(self.id)

    async def clear(self) -> None:
        """Drops the files and figures that runs left behind; state stays."""
        await self._service.sessions.clear(self.id)

    async def reset(self) -> None:
        """Drops all state, stopping what runs."""
        await self._service.sessions.reset(self.id)
