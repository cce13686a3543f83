"""What a model needs to know to write code in a language, asked of the language itself in a sandbox."""

import re
from dataclasses import dataclass

from .backends.base import WORKDIR, Sandbox
from .errors import SandboxError
from .kernel import Places
from .languages import Language
from .libraries.installing import libraries_at_hand
from .libraries.preparing import Preparer
from .pool import Pool
from .profile import Profile
from .results import Library

_LATER = "known once its libraries are prepared"


@dataclass(frozen=True, slots=True)
class _Answer:
    version: str
    libraries: tuple[Library, ...]


class Describer:
    """Describes languages; each is asked once."""

    def __init__(self, profile: Profile, pool: Pool, preparer: Preparer) -> None:
        self._profile = profile
        self._pool = pool
        self._preparer = preparer
        self._answers: dict[str, _Answer] = {}

    async def describe(self, language: Language) -> dict[str, object]:
        """The description of one language as JSON takes it; `problem` says why it cannot run here."""
        handler = language.handler
        problem = {}
        answer = self._unprepared(language)
        if self._preparer.ready(language):
            try:
                answer = await self._ask(language)
            except SandboxError as error:
                mend = f"; {handler.requires.install}" if handler.requires.install else ""
                problem = {"problem": f"{handler.title} does not run here: {error}{mend}"}
        return {
            "name": handler.name,
            "title": handler.title,
            "aliases": list(handler.aliases),
            "version": answer.version,
            **problem,
            "file_extension": handler.extension,
            "keeps_state": handler.stateful,
            "takes_variables": handler.runner is not None,
            "working_directory": WORKDIR,
            "figures": list(handler.figures),
            "package_manager": handler.libraries.manager if handler.libraries else None,
            "libraries": [{"name": library.name, "version": library.version} for library in answer.libraries],
            "examples": [example.model_dump() for example in handler.examples],
        }

    def _unprepared(self, language: Language) -> _Answer:
        named = self._profile.language(language.name).libraries
        return _Answer(_LATER, tuple(Library(name, _LATER) for name in named))
