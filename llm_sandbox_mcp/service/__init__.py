"""What a server offers, independent of the transport: one class for each use case, and `Service` with all of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..base.errors import InvalidArgument
from ..base.results import Execution, Installation, OnProgress, PoolStatistics
from ..rules.checking import Finding, Unready
from ..rules.section import Rule
from ..runs.requests import checked_code
from .ask import Ask
from .contents import Contents
from .describing import Describer
from .door import Door
from .files import Files
from .installing import Installing
from .keeping import Keeping
from .overviews import Overviews
from .parts import Parts
from .preparation import Preparation
from .running import Running
from .sessions import Sessions
from .shared_states import SharedStates
from .starts import Starts
from .states import States
from .views import Views
from .work import NOBODY, Listener, Work


class Service:
    """Everything that one server offers. Made by `wiring.open_service`."""

    def __init__(self, parts: Parts) -> None:
        self.profile = parts.profile
        self.languages = parts.languages
        self.backend = parts.backend
        self._pool = parts.pool
        self._checker = parts.checker
        self._preparation = Preparation(parts)
        self._describer = Describer(parts)
        self.files = Files(parts)
        self.overviews = Overviews(parts)
        self.views = Views(parts.profile.views, parts.folders)
        contents = Contents(parts, self._preparation)
        self.keeping = Keeping(parts, contents)
        self.sessions = Sessions(parts, self._preparation, self.views, self.keeping)
        shared = SharedStates(parts, contents)
        self.starts = Starts(parts, contents, shared)
        self.states = States(parts, self._preparation, contents, shared, self.starts)
        running = Running(parts, self.sessions, self._preparation, Installing(parts), self.views, self.overviews)
        self.door = Door(parts, running, self.sessions)

    async def run(self, ask: Ask, listener: Listener = NOBODY) -> Execution:
        """Runs code, for a caller that waits for the result; one that may leave starts it at the door."""
        if ask.code is None:
            raise InvalidArgument("code is missing", "give the source to run")
        return (await self._attend(ask, listener)).execution

    async def install(self, ask: Ask, listener: Listener = NOBODY) -> Installation:
        """Installs libraries into a session; `InstallFailed` has the tool's last lines."""
        return (await self._attend(ask, listener)).installation

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules in force for code."""
        return self._checker.rules

    async def findings(self, code: str, language: str = "python") -> Sequence[Finding]:
        """What the rules find in code, without running it; raises `PolicyDenied` if the code cannot be judged."""
        return await self._checker.find(self.languages[language], checked_code(code, self.profile.limits.code))

    async def unjudged(self) -> Mapping[str, Unready]:
        """The languages whose code is refused because the rules cannot judge it here."""
        return await self._checker.unready()

    async def describe_language(self, name: str) -> dict[str, object]:
        """What a model needs to know to write code in a language here."""
        return await self._describer.describe(self.languages[name])

    async def prepare(self, language: str, on_progress: OnProgress) -> str:
        """Prepares a language and its image ahead of its use; returns why it has to run without its libraries."""
        return await self._preparation.prepare(self.languages[language], on_progress)

    def preparing(self) -> Mapping[str, str]:
        """How far the libraries are that are being prepared now, in words, by language."""
        return self._preparation.progress()

    async def warm(self, languages: Iterable[str] | None = None) -> None:
        """Prepares everything for runs in these languages, by default in all, and keeps it ready.

        Failures are ignored here: they happen again, and are reported, when a language is used.
        """
        self.keeping.check()
        self.starts.serve()
        await self._preparation.warm(languages)

    def pool(self) -> PoolStatistics:
        """How many sandboxes there are, and in which state."""
        return self._pool.statistics()

    async def pool_until(self, condition: Callable[[PoolStatistics], bool]) -> None:
        """Returns once the condition is true for the pool, for example when it is filled after `warm`."""
        await self._pool.until(condition)

    async def _attend(self, ask: Ask, listener: Listener) -> Work:
        checked = await self.door.check(ask)
        # Not before this: an idle session can be put aside meanwhile, to make room for others.
        await self.keeping.wake(ask.caller, ask.session_id)
        return await self.door.attend(checked, listener)
