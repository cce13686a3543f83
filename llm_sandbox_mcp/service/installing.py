"""Installs libraries into a session, separately or before code that needs them."""

from collections.abc import Mapping, Sequence

from ..backends.base import Sandbox
from ..base.messages import Note, Step, listed
from ..base.results import Installation, Library, OnProgress
from ..base.text import one_line
from ..languages.languages import Language
from ..languages.modules import among
from ..languages.places import Places
from ..sessions.session import Session
from .parts import Parts

_NAMED = 8
"""Replaced libraries that a note names at most."""


class Installing:
    """Installs into the sessions of all callers."""

    def __init__(self, parts: Parts) -> None:
        self._installer = parts.installer
        self._audit = parts.audit

    def check(self, language: Language, libraries: Sequence[str]) -> tuple[Sequence[str], list[Note]]:
        """The libraries to install for these names, and notes about names that mean others.

        Raises a request error for libraries that would not be installed, before anything starts.
        """
        with self._audit.denials("libraries.refused", language=language.name):
            return self._installer.check(language, libraries)

    def check_hint(self, language: Language, library: str) -> None:
        """Raises a request error for a library that nobody asked for, and that would not be installed; logs nothing."""
        self._installer.check(language, (library,))

    async def into(
        self,
        session: Session,
        sandbox: Sandbox,
        places: Places,
        libraries: Sequence[str],
        on_progress: OnProgress | None,
    ) -> Installation:
        """Installs into a session whose turn the caller has; a note says if a library has another version now.

        If the profile allows only some libraries, a failure drops the sandbox.
        """
        try:
            change = await self._installer.install(sandbox, places, libraries, on_progress)
        except BaseException:
            if self._installer.ruled(places.language):
                session.drop("an installation failed that may have brought in libraries that the profile denies")
            raise
        name, notes = places.language.name, list[Note]()
        new = {library.name for library in change.libraries} - {library.name for library in change.before}
        unseen = among(new, session.missed(name), places.language) if session.has_run(name) else []
        if change.libraries != change.before:
            await session.use_libraries(name, change.libraries)
        if change.replaced:
            notes.append(_note_of_replaced(name, change.replaced, old=session.has_run(name)))
        elif unseen:
            known = f"code in {name} goes on with what it imported before {listed(unseen, _NAMED)} was there"
            notes.append(Note("libraries_unseen", known, Step.RESTART, libraries=unseen))
        return Installation(session.id, change.libraries, change.before, notes=tuple(notes))


def _note_of_replaced(language: str, replaced: Mapping[Library, Library], *, old: bool) -> Note:
    """`old`: the interpreter of the language may have loaded what was replaced."""
    swaps = sorted(f"{before.name} {before.version} is now {after.version}" for before, after in replaced.items())
    cause = f"{one_line(listed(swaps, _NAMED))} in this session"
    names = [library.name for library in replaced]
    if not old:
        return Note("libraries_replaced", cause, libraries=names)
    cause += f", but code in {language} goes on with what it has imported already"
    return Note("libraries_replaced", cause, Step.RESTART, libraries=names)
