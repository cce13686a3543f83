"""Prepares what a language needs from the host before a sandbox can run it: its environment, and our own tools."""

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio.from_thread
import anyio.to_thread

from ...aio.tasks import open_tasks
from ...backends.base import Backend
from ...backends.layout import ENVIRONMENTS, TOOLS
from ...base.errors import StartFailed
from ...base.results import OnProgress
from ...languages.languages import Language, Languages
from ...languages.places import Places
from ...profile.profile import Profile
from .builds import Environments
from .cache import prune
from .environments import find, place_of, silent

_RETRY = 60.0
"""Seconds until libraries that could not be prepared are tried again, in the background."""


def environment_places(profile: Profile, languages: Languages, cache: Path) -> tuple[Path, ...]:
    """The folders in which the environments of a server are, or will be: with its profile's libraries and without."""
    wanted = [
        place_of(cache, languages[name], libraries)
        for name, prepared in languages.prepared.items()
        if prepared
        for libraries in (profile.language(name).libraries, ())
    ]
    return tuple(dict.fromkeys(wanted))


class Preparer:
    """Prepares each language once; an async context manager, because builds run only in its scope."""

    def __init__(
        self, profile: Profile, languages: Languages, cache: Path, environ: Mapping[str, str], backend: Backend
    ) -> None:
        """If the images of the backend have their own environment, nothing is prepared."""
        self._profile = profile
        self._languages = languages
        self._cache = cache
        self._environments = Environments(cache, environ)
        self._backend = backend
        self._places: dict[str, Places] = {}
        self._retry_at: dict[str, float] = {}
        """When the libraries of a language are tried again."""

    async def __aenter__(self) -> "Preparer":
        await self._environments.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._environments.__aexit__(None, None, None)

    async def places(self, language: Language, on_progress: OnProgress | None = None) -> Places:
        """The paths of the language in any sandbox; prepares what is missing, and reports the progress.

        If its libraries cannot be prepared, it runs without them, which `Places.lacking` explains, and they are tried
        again later. Raises `StartFailed` with the last lines of uv if not even an empty environment can be built, or
        with the reason if the disk of the host cannot be written.
        """
        known = self._places.get(language.name)
        if known is not None and (known.complete or not self._has_more(known)):
            return known
        try:
            return await self._prepare(language, on_progress or silent)
        except OSError as error:
            raise StartFailed(
                f"{language.name} cannot be prepared in {self._cache}: {error.strerror or error}",
                "free disk space there, or set server.cache in the profile",
            ) from error

    async def _prepare(self, language: Language, on_progress: OnProgress) -> Places:
        inside = environment = await self._inside()
        tools = f"{inside}/bin" if inside else ""
        section, lacking = self._profile.language(language.name), ""
        if language.handler.environment is not None and not inside:
            built, lacking = await self._environment(language, on_progress)
            environment = f"{ENVIRONMENTS}/{built}"
        if language.handler.libraries is not None and not inside:
            tools = f"{TOOLS}/{await self._environments.tools()}"
        places = self._places[language.name] = Places(
            language,
            environment=environment,
            tools=tools,
            settings=section.env,
            memory=self._profile.limits.memory,
            network=self._profile.network.mode,
            views=bool(self._profile.views),
            everywhere=tuple(self._languages.values()),
            companions=await self._companions(language, on_progress),
            lacking=lacking,
        )
        return places

    async def _environment(self, language: Language, on_progress: OnProgress) -> tuple[str, str]:
        """The key of the environment, and why it has none of the libraries of the profile."""
        section, name = self._profile.language(language.name), language.name
        lacking = ""
        if self._profile.server.offline and await find(language, section.libraries, self._cache) == "":
            lacking = "the server works offline (server.offline), and they are not prepared"
        else:
            try:
                prepared = self._environments.prepare(language, section.libraries, on_progress, index=section.index)
                return await prepared, ""
            except StartFailed as failure:
                if not section.libraries:
                    raise
                lacking = str(failure)
        bare = await self._environments.prepare(language, (), on_progress, index=section.index)
        self._retry_at[name] = anyio.current_time() + _RETRY
        return bare, lacking

    def _has_more(self, known: Places) -> bool:
        """Whether libraries that these places lack were prepared meanwhile; now and then, a build is begun for that."""
        for language in (places.language for places in (known, *known.companions) if places.lacking):
            section = self._profile.language(language.name)
            if self._environments.has_built(language, section.libraries, index=section.index):
                return True
            if anyio.current_time() >= self._retry_at[language.name] and not self._profile.server.offline:
                self._retry_at[language.name] = anyio.current_time() + _RETRY
                self._environments.begin(language, section.libraries, index=section.index)
        return False

    async def _companions(self, language: Language, on_progress: OnProgress) -> tuple[Places, ...]:
        """The places of languages whose programs the code starts; without those that cannot be prepared here."""
        found = []
        for name in language.handler.companions:
            with suppress(StartFailed):  # the code may not need it
                found.append(await self.places(self._languages[name], on_progress))
        return tuple(found)

    async def image(self, language: Language, on_progress: OnProgress) -> None:
        """Builds or pulls the language's image if the engine has images and this one is missing; reports the progress.

        The profile decides whether to build or to pull. Raises `StartFailed` with the last lines if that fails.
        """
        images = (await self._backend.chosen()).images
        if images is None:
            return
        send, receive = anyio.create_memory_object_stream[str](math.inf)

        def on_line(line: str) -> None:
            anyio.from_thread.run_sync(send.send_nowait, line)

        async def report() -> None:
            async for line in receive:
                await on_progress(line)

        with receive:
            async with open_tasks() as tasks:
                tasks.start_soon(report)
                with send:
                    await images.prepare(language.name, on_line)

    def progress(self) -> Mapping[str, str]:
        """How far the libraries are that are being prepared now, in words, by language."""
        return self._environments.progress()

    async def compiled(self) -> None:
        """Returns once the bytecode of what was prepared so far is complete."""
        await self._environments.compiled()

    async def prune(self) -> None:
        """Removes files that were not used for a long time, and the least recently used ones if there are too many."""
        await anyio.to_thread.run_sync(prune, self._cache)

    async def ready(self, language: Language) -> bool:
        """Whether `places` returns without building anything."""
        if language.name in self._places or await self._inside():
            return True
        for name in language.handler.companions:
            if not await self.ready(self._languages[name]):
                return False
        if language.handler.environment is None:
            return True
        return await find(language, self._profile.language(language.name).libraries, self._cache) != ""

    async def _inside(self) -> str:
        """The folder of the environment in every image; empty if the engine has no images."""
        return (await self._backend.chosen()).environment
