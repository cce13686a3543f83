"""What a model needs to know to write code in a language, queried from the language itself in a sandbox."""

from dataclasses import dataclass

from ..backends.base import Sandbox
from ..backends.layout import WORKDIR
from ..base.errors import InstallFailed, SandboxError, StartFailed
from ..base.results import Library
from ..languages.languages import Language
from ..languages.places import Places
from ..libraries.installing import choose
from ..libraries.listing import list_libraries
from .parts import Parts

_LATER = "known once its libraries are prepared"


@dataclass(frozen=True, slots=True)
class _Answer:
    version: str
    libraries: tuple[Library, ...]


async def ask_version(sandbox: Sandbox, places: Places) -> str:
    """The version that the language prints, in one line; if it does not start, raises `StartFailed` with its output."""
    done = await sandbox.run(places.argv(places.language.handler.version_command), places.env(sandbox.path))
    version = (done.stdout or done.stderr).decode(errors="replace").strip().partition("\n")[0]
    if done.exit_code != 0:
        raise StartFailed(version or "it does not start")
    return version


class Describer:
    """Describes languages; each language is queried only once."""

    def __init__(self, parts: Parts) -> None:
        self._profile = parts.profile
        self._pool = parts.pool
        self._preparer = parts.preparer
        self._answers: dict[str, _Answer] = {}

    async def describe(self, language: Language) -> dict[str, object]:
        """The description of one language, ready for JSON; `problem` says why it cannot run here."""
        handler = language.handler
        problem = {}
        start = self._profile.language(language.name).start
        answer = self._unprepared(language)
        try:
            if await self._preparer.ready(language):
                answer = await self._ask(language)
        except SandboxError as error:
            fix = f"; if it is missing: {handler.requires.install}" if handler.requires.install else ""
            problem = {"problem": f"{handler.title} does not run here: {error}{fix}"}
        return {
            "name": handler.name,
            "title": handler.title,
            "aliases": list(handler.aliases),
            "version": answer.version,
            **problem,
            "file_extension": handler.extension,
            "keeps_state": handler.stateful,
            **({"starts_from": start} if start else {}),
            "takes_variables": handler.runner is not None,
            "working_directory": WORKDIR,
            "figures": list(handler.figures),
            "uses": list(handler.uses),
            "package_manager": handler.libraries.manager if handler.libraries else None,
            "libraries": [{"name": library.name, "version": library.version} for library in answer.libraries],
            "examples": [example.model_dump() for example in handler.examples],
        }

    def _unprepared(self, language: Language) -> _Answer:
        named = self._profile.language(language.name).libraries
        return _Answer(_LATER, tuple(Library(name, _LATER) for name in named))

    async def _ask(self, language: Language) -> _Answer:
        if language.name in self._answers:
            return self._answers[language.name]
        places = await self._preparer.places(language)
        handler = language.handler
        # This needs no interpreter, so the warm ones are left for callers that run code.
        lease = await self._pool.acquire(language.name, self._profile.policy(), warm=False)
        try:
            version = await ask_version(lease.sandbox, places)
            found: tuple[Library, ...] = ()
            if handler.libraries is not None:
                found = await self._provided(lease.sandbox, places)
        finally:
            lease.release()
        answer = _Answer(version, found)
        if places.complete:
            self._answers[language.name] = answer
        return answer

    async def _provided(self, sandbox: Sandbox, places: Places) -> tuple[Library, ...]:
        try:
            manager = await choose(sandbox, places)
        except InstallFailed:
            return ()  # code runs anyway, and an installation reports why it is not possible
        return await list_libraries(sandbox, places, manager.provided or manager.installed)
