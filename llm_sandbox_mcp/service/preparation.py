"""Prepares what code needs to run: the environment of its language, an image, a sandbox."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

import anyio

from ..aio.tasks import open_tasks
from ..backends.base import Sandbox
from ..base.errors import EngineUnavailable, SandboxError
from ..base.results import OnProgress
from ..languages.languages import Language
from ..languages.places import Places
from ..sessions.session import Session
from .parts import Parts

_SWEEP = 60.0
"""Seconds between two sweeps."""

_log = logging.getLogger(__name__)


class Preparation:
    """Prepares things when they are needed, and in advance once a server serves."""

    def __init__(self, parts: Parts) -> None:
        """Sweeping runs in the tasks of the parts."""
        self._profile = parts.profile
        self._policy = parts.profile.policy()
        self._languages = parts.languages
        self._backend = parts.backend
        self._pool = parts.pool
        self._preparer = parts.preparer
        self._tasks = parts.tasks
        self._serving = False
        self._told: set[str] = set()
        """The languages that the log says have no libraries."""

    async def places(self, language: Language, on_progress: OnProgress | None = None) -> Places:
        """Where the language finds its things, once they are prepared; from then on, a server keeps sandboxes warm.

        Raises `EngineUnavailable` before it prepares anything that no sandbox could use.
        """
        if not await self._preparer.ready(language):
            await self._need_engine()
        places = await self._preparer.places(language, on_progress)
        if self._serving:
            self._pool.keep_warm(language.name, self._policy)
            if places.lacking and language.name not in self._told:
                self._told.add(language.name)
                _log.warning("%s runs without its libraries: %s", language.name, places.lacking)
        return places

    async def _need_engine(self) -> None:
        if obstacle := await (await self._backend.chosen()).obstacle():
            raise EngineUnavailable(*obstacle)

    async def sandbox(self, session: Session, language: Language, on_progress: OnProgress | None) -> Sandbox:
        """The session's sandbox; if it needs a new one, prepares its image first and reports the progress."""
        if on_progress is None or session.has_sandbox:
            return await session.sandbox(language.name)
        made_for = language if session.put_aside is None else self._languages[session.language]
        await self._preparer.image(made_for, on_progress)
        async with open_tasks() as telling:
            telling.start_soon(self._tell, on_progress)
            sandbox = await session.sandbox(language.name, on_progress)
            telling.cancel_scope.cancel()
        return sandbox

    async def _tell(self, on_progress: OnProgress) -> None:
        with suppress(SandboxError):  # the sandbox that is waited for fails with the same error
            await self._backend.tell(on_progress)

    async def prepare(self, language: Language, on_progress: OnProgress) -> str:
        """Prepares a language and its image ahead of its use; returns why it has to run without its libraries.

        It ends when the bytecode of the libraries is complete, for which runs do not wait. Raises `EngineUnavailable`
        before it prepares anything that no sandbox could use.
        """
        await self._need_engine()
        await self._preparer.image(language, on_progress)
        places = await self._preparer.places(language, on_progress)
        await self._preparer.compiled()
        return places.lacking

    def progress(self) -> Mapping[str, str]:
        """How far the libraries are that are being prepared now, in words, by language."""
        return self._preparer.progress()

    async def warm(self, languages: Iterable[str] | None) -> None:
        """Prepares languages (by default all), and fills the pool.

        From then on, the pool is filled for each language that is used, and what servers leave behind is removed.
        """
        if not self._serving:
            self._tasks.start_soon(self._sweep)
        self._serving = True
        promised, room = self._profile.sessions.max, self._backend.bottleneck
        if room.sandboxes < promised:
            _log.warning(
                "sessions.max is %d, but there is room for only %d sandboxes (%s); %s",
                *(promised, room.sandboxes, room.of, room.step),
            )
        for language in [self._languages[name] for name in (self._languages if languages is None else languages)]:
            with suppress(SandboxError):
                await self.places(language)
        await self._preparer.prune()

    async def _sweep(self) -> None:
        """Removes what servers that are gone left behind, again and again: one that replaces another starts before it
        is certain that the other is gone."""
        while True:
            with suppress(SandboxError):
                await self._backend.sweep()
            await anyio.sleep(_SWEEP)
