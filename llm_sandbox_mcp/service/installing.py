"""Installs libraries into a session, separately or before code that needs them."""

from collections.abc import Sequence

from ..backends.base import Sandbox
from ..base.errors import InvalidArgument
from ..base.results import Installation, Library, OnProgress
from ..host.audit import Audit
from ..languages.languages import Language, Languages
from ..languages.places import Places
from ..libraries.installing import Installer
from ..sessions.live import SessionId
from ..sessions.session import Session
from .preparation import Preparation
from .sessions import Sessions


class Installing:
    """Installs into the sessions of all callers."""

    def __init__(
        self, languages: Languages, sessions: Sessions, preparation: Preparation, installer: Installer, audit: Audit
    ) -> None:
        self._languages = languages
        self._sessions = sessions
        self._preparation = preparation
        self._installer = installer
        self._audit = audit

    async def install(
        self,
        libraries: Sequence[str],
        *,
        language: str = "python",
        session_id: SessionId = "",
        on_progress: OnProgress | None = None,
    ) -> Installation:
        """Installs libraries into a session, by default a new one; `InstallFailed` has the tool's last lines."""
        chosen = self._languages[language]
        if not libraries:
            raise InvalidArgument("libraries must name at least one library, such as requests or numpy==2.1")
        self.check(chosen, libraries)
        session = self._sessions.find(session_id, chosen)
        async with self._sessions.use(session, new=not session_id):
            places = await self._preparation.places(chosen, on_progress)
            sandbox = await self._preparation.sandbox(session, chosen, on_progress)
            installed = await self.into(session, sandbox, places, libraries, on_progress)
        return Installation(session.id, installed)

    def check(self, language: Language, libraries: Sequence[str]) -> None:
        """Raises a request error for libraries that would not be installed, before anything starts."""
        with self._audit.denials("libraries.refused", language=language.name):
            self._installer.check(language, libraries)

    def check_hint(self, language: Language, library: str) -> None:
        """The same for a library that nobody asked for; nothing is logged."""
        self._installer.check(language, (library,))

    async def into(
        self,
        session: Session,
        sandbox: Sandbox,
        places: Places,
        libraries: Sequence[str],
        on_progress: OnProgress | None,
    ) -> tuple[Library, ...]:
        """Installs into a session whose turn the caller has; if the profile allows only some libraries, a failure drops
        the sandbox.
        """
        try:
            installed = await self._installer.install(sandbox, places, libraries, on_progress)
        except BaseException:
            if self._installer.ruled(places.language):
                session.drop("an installation failed that may have brought in libraries that the profile denies")
            raise
        session.use_libraries(places.language.name, installed)
        return installed
