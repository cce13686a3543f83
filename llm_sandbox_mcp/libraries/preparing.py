"""What a language needs from the host before a sandbox can run it: its prepared environment, and our own tools."""

from collections.abc import Mapping
from pathlib import Path

import anyio.lowlevel

from ..kernel import Places
from ..languages import Language
from ..profile import Profile
from ..results import OnProgress
from .builds import Environments
from .environments import find, stage_tool_uv


async def _silent(line: str) -> None:
    await anyio.lowlevel.checkpoint()


class Preparer:
    """Prepares each language once; an async context manager, in whose scope builds run."""

    def __init__(self, profile: Profile, cache: Path, environ: Mapping[str, str] | None = None) -> None:
        self._profile = profile
        self._cache = cache
        self._environments = Environments(cache, environ)
        self._places: dict[str, Places] = {}

    async def __aenter__(self) -> "Preparer":
        await self._environments.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._environments.__aexit__(None, None, None)

    async def places(self, language: Language, on_progress: OnProgress | None = None) -> Places:
        """Where the language finds its things in any sandbox; prepares what is missing and tells how that goes.

        Raises `StartFailed` with the tool's last lines when the environment cannot be built.
        """
        known = self._places.get(language.name)
        if known is not None:
            return known
        environment = tools = ""
        section = self._profile.language(language.name)
        if language.handler.environment is not None:
            environment = await self._environments.prepare(
                language, section.libraries, on_progress or _silent, index=section.index
            )
        if language.handler.libraries is not None:
            tools = (await stage_tool_uv(self._cache)).parent.name
        places = self._places[language.name] = Places(
            language,
            environment=environment,
            tools=tools,
            settings=section.env,
            memory=self._profile.limits.memory,
        )
        return places

    async def ready(self, language: Language) -> bool:
        """Whether `places` answers without building anything."""
        if language.name in self._places or language.handler.environment is None:
            return True
        return await find(language, self._profile.language(language.name).libraries, self._cache) is not None
