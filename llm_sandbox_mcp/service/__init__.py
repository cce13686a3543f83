"""What a server offers, independent of the transport: one class for each use case, and `Service` with all of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from anyio.abc import TaskGroup

from ..backends.base import Backend
from ..base.results import OnProgress, PoolStatistics
from ..files.artifacts import ArtifactStore
from ..files.watching import WatchedFolders
from ..host.audit import Audit
from ..languages.languages import Languages
from ..libraries.installing import Installer
from ..libraries.prepared.preparing import Preparer
from ..pool.pool import Pool
from ..profile.profile import Profile
from ..rules.checking import Checker, Finding, Unready
from ..rules.section import Rule
from ..runs.requests import checked_code
from ..sessions.live import LiveSessions
from .background import Runs
from .describing import Describer
from .executing import Executing
from .files import Files
from .installing import Installing
from .preparation import Preparation
from .sessions import Sessions
from .views import Views


class Service:
    """Everything that one server offers. Made by `wiring.open_service`."""

    def __init__(
        self,
        profile: Profile,
        languages: Languages,
        backend: Backend,
        pool: Pool,
        live: LiveSessions,
        store: ArtifactStore,
        preparer: Preparer,
        installer: Installer,
        checker: Checker,
        audit: Audit,
        folders: WatchedFolders,
        tasks: TaskGroup,
    ) -> None:
        """Runs that go on without their caller, and sweeping, live in `tasks`."""
        self.profile = profile
        self.languages = languages
        self.backend = backend
        self._pool = pool
        self._checker = checker
        self._preparation = Preparation(profile, languages, backend, pool, preparer, tasks)
        self._describer = Describer(profile, pool, preparer)
        self.files = Files(profile, live, store)
        self.views = Views(profile.views, folders)
        self.sessions = Sessions(profile, languages, backend, live, store, self._preparation, self.views)
        installing = Installing(languages, self.sessions, self._preparation, installer, audit)
        self.install = installing.install
        self.executing = Executing(
            profile, languages, self.sessions, self._preparation, installing, store, self.views, checker, audit
        )
        self.execute = self.executing.execute
        self.runs = Runs(self.executing, live, tasks, profile.limits.shown, profile.sessions)

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules in force for code."""
        return self._checker.rules

    async def findings(self, code: str, language: str = "python") -> Sequence[Finding]:
        """What the rules find in code, without running it; raises `PolicyDenied` if the code cannot be judged."""
        return await self._checker.find(self.languages[language], checked_code(code, self.profile.limits.code)[0])

    async def unjudged(self) -> Mapping[str, Unready]:
        """The languages whose code is refused because the rules cannot judge it here."""
        return await self._checker.unready()

    async def describe_language(self, name: str) -> dict[str, object]:
        """What a model needs to know to write code in a language here."""
        return await self._describer.describe(self.languages[name])

    async def prepare(self, language: str, on_progress: OnProgress) -> str:
        """Prepares a language and its image ahead of its use; returns why it has to run without its libraries."""
        return await self._preparation.prepare(self.languages[language], on_progress)

    async def warm(self, languages: Iterable[str] | None = None) -> None:
        """Prepares everything for runs in these languages, by default in all, and keeps it ready.

        Failures are ignored here: they happen again, and are reported, when a language is used.
        """
        await self._preparation.warm(languages)

    def pool(self) -> PoolStatistics:
        """How many sandboxes there are, and in which state."""
        return self._pool.statistics()

    async def pool_until(self, condition: Callable[[PoolStatistics], bool]) -> None:
        """Returns once the condition is true for the pool, for example when it is filled after `warm`."""
        await self._pool.until(condition)
