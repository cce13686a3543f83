"""Shares builds inside one server: sessions that need the same environment at the same time wait for one build."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from ...base.errors import SandboxError
from ...base.results import OnProgress
from ...languages.languages import Language
from .bytecode import compile_bytecode
from .environments import ELSEWHERE, environment_path, prepare, stage_tool_uv
from .keeping import hold
from .progress import Progress

_LINES = 16
"""Lines that can wait for one caller; there are no more of one build."""


class Environments:
    """Prepares environments while it is open; closing it stops the builds, which then leave nothing behind."""

    def __init__(self, cache: Path, environ: Mapping[str, str] | None = None) -> None:
        self._cache = cache
        self._environ = environ
        self._builds: dict[_Wanted, _Build] = {}
        self._built: set[_Wanted] = set()
        self._held: dict[Path, int | None] = {}
        """Descriptors that keep the folders in use from being removed."""
        self._compiling: set[anyio.Event] = set()
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._tasks.cancel_scope.cancel()
        try:
            return await self._tasks.__aexit__(kind, error, trace)
        finally:
            for descriptor in filter(None, self._held.values()):
                os.close(descriptor)

    def path(self, key: str) -> Path:
        """The folder of the environment with that key."""
        return environment_path(self._cache, key)

    async def prepare(
        self, language: Language, libraries: Sequence[str], on_progress: OnProgress, *, index: str = ""
    ) -> str:
        """Like `environments.prepare`; a caller that is cancelled does not stop the build for the others.

        Progress is a share and an estimate, told at each tenth; `progress` has the newest.
        """
        build = self._begin(language, _wanted(language, libraries, index))
        send, receive = anyio.create_memory_object_stream[str](_LINES)
        if build.told:
            send.send_nowait(build.words)
        build.callers.add(send)
        try:
            async with receive:
                async for line in receive:
                    await on_progress(line)
        finally:
            build.callers.discard(send)
            send.close()
        if build.failure is not None:
            raise type(build.failure)(*build.failure.args) from build.failure
        return build.key

    def progress(self) -> Mapping[str, str]:
        """How far the builds are that go on now, in words, by language."""
        return {name: build.words for (name, _, _), build in self._builds.items()}

    async def compiled(self) -> None:
        """Returns once the bytecode of what was prepared so far is complete."""
        for done in [*self._compiling]:
            await done.wait()

    def has_built(self, language: Language, libraries: Sequence[str], *, index: str = "") -> bool:
        """Whether a build of this environment has succeeded since this was opened."""
        return _wanted(language, libraries, index) in self._built

    def begin(self, language: Language, libraries: Sequence[str], *, index: str = "") -> None:
        """Begins a build of this environment in the background, unless one goes on."""
        self._begin(language, _wanted(language, libraries, index))

    def _begin(self, language: Language, wanted: "_Wanted") -> "_Build":
        if wanted not in self._builds:
            self._builds[wanted] = _Build(language.handler.title)
            self._tasks.start_soon(self._build, self._builds[wanted], language, wanted)
        return self._builds[wanted]

    async def tools(self) -> str:
        """The folder of the tool that installs libraries, below the folder of all tools; sandboxes mount it."""
        while not self._keep(folder := (await stage_tool_uv(self._cache)).parent):
            continue
        return f"{folder.parent.name}/{folder.name}"

    def _keep(self, folder: Path) -> bool:
        """Keeps a folder until this is closed; returns false if another server has just removed it."""
        if folder not in self._held:
            try:
                self._held[folder] = hold(folder)
            except FileNotFoundError:
                return False
        return True

    async def _build(self, build: "_Build", language: Language, wanted: "_Wanted") -> None:
        _, libraries, index = wanted
        try:
            while not build.key:
                key = await prepare(language, libraries, self._cache, build.report, index=index, environ=self._environ)
                if self._keep(self.path(key)):
                    build.key = key
                    self._built.add(wanted)
        except (SandboxError, OSError) as error:  # a full disk, for example; it must not end the other builds
            build.failure = error
        finally:
            # The build is forgotten: the next caller finds the environment on disk, or tries again after a failure.
            del self._builds[wanted]
            if build.key and libraries:
                self._compiling.add(done := anyio.Event())
                self._tasks.start_soon(self._compile, self.path(build.key), done)
            for caller in build.callers:
                caller.close()

    async def _compile(self, target: Path, done: anyio.Event) -> None:
        try:
            await compile_bytecode(target)
        finally:
            self._compiling.discard(done)
            done.set()


_Wanted = tuple[str, tuple[str, ...], str]
"""A language, its libraries, and their index."""


def _wanted(language: Language, libraries: Sequence[str], index: str) -> _Wanted:
    return language.name, tuple(sorted(set(libraries))), index


class _Build:
    def __init__(self, title: str) -> None:
        self.callers: set[MemoryObjectSendStream[str]] = set()
        self.key = ""
        self.failure: SandboxError | OSError | None = None
        self.told: set[str | int] = set()
        """The tenths that were told, and that another server does the work."""
        self._elsewhere = False
        self._progress = Progress(title)

    @property
    def words(self) -> str:
        return ELSEWHERE if self._elsewhere else str(self._progress)

    async def report(self, line: str) -> None:
        self._elsewhere = line == ELSEWHERE
        self._progress.take(line)
        news = ELSEWHERE if self._elsewhere else int(self._progress.share * 10)
        if news in self.told:
            return
        self.told.add(news)
        for caller in self.callers:
            try:
                caller.send_nowait(self.words)
            except (anyio.WouldBlock, anyio.BrokenResourceError):
                continue
