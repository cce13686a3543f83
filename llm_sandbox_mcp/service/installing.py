"""Installs libraries into a session, separately or before code that needs them."""

from collections.abc import Sequence

from ..backends.base import Sandbox
from ..base.results import Library, OnProgress
from ..languages.languages import Language
from ..languages.places import Places
from ..sessions.session import Session
from .parts import Parts


class Installing:
    """Installs into the sessions of all callers."""

    def __init__(self, parts: Parts) -> None:
        self._installer = parts.installer
        self._audit = parts.audit

    def check(self, language: Language, libraries: Sequence[str]) -> None:
        """Raises a request error for libraries that would not be installed, before anything starts."""
        with self._audit.denials("libraries.refused", language=language.name):
            self._installer.check(language, libraries)

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
    ) -> tuple[tuple[Library, ...], tuple[Library, ...]]:
        """Installs into a session whose turn the caller has; returns all that it has now, and all that it had before.

        If the profile allows only some libraries, a failure drops the sandbox.
        """
        try:
            installed, had = await self._installer.install(sandbox, places, libraries, on_progress)
        except BaseException:
            if self._installer.ruled(places.language):
                session.drop("an installation failed that may have brought in libraries that the profile denies")
            raise
        session.use_libraries(places.language.name, installed)
        return installed, had
