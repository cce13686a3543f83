"""Lets the interpreters of a session save their variables, and those of another session open them again."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from ..backends.base import Sandbox
from ..base.errors import BadState, SandboxError, SandboxLost
from ..base.messages import Note
from ..base.results import Library, Missing, OnProgress
from ..languages.places import Places
from ..runs.run import Outcome
from ..sessions.session import Session
from ..state import packing
from ..state.changes import FOLDER
from ..state.reports import Report
from .parts import Parts
from .preparation import Preparation

_LONGEST = 120.0
"""Seconds to save or open the variables of one language."""
_TRIES = 8
"""How many interpreters may die of variables that are opened, one each."""
_FRESH = "run code in it first"
UNABLE = "this language cannot save them"


class Home(Protocol):
    """Where variables are opened: a session, or a sandbox that no session has yet."""

    async def act(self, places: Places, code: str, timeout: float) -> Outcome:
        """Runs code of the server's own in the interpreter of a language."""

    async def use_libraries(self, language: str, installed: tuple[Library, ...]) -> None:
        """Takes note of the libraries that are installed now."""

    def has(self, sandbox: Sandbox) -> bool:
        """Whether this is still its sandbox."""


Begin = Callable[[Sandbox, Iterable[str]], Awaitable[None]]


@dataclass(slots=True)
class Kept:
    """What became of the variables of a session, in all of its languages."""

    kept: dict[str, int] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    """By language, why there is no report, if there is none."""

    def take(self, reports: Mapping[str, Report]) -> None:
        """Takes in the reports of all languages."""
        for name, reason in self.reasons.items():
            self.add(name, reports.get(name, Report()), reason)

    def add(self, language: str, report: Report, reason: str) -> None:
        """Takes in the report of one language; `reason` says why there is none, if so."""
        if report.kept is None:
            self.missing.append(Missing(language, "all variables", "", reason))
        else:
            self.kept[language] = report.kept
        self.missing += report.missing
        self.notes += [Note("state_differs", f"{language}: {note}", language=language) for note in report.notes]


class Variables:
    """The variables of all sessions: how they are saved and opened is in the handler folder of each language."""

    def __init__(self, parts: Parts, preparation: Preparation) -> None:
        self._languages = parts.languages
        self._preparation = preparation

    @asynccontextmanager
    async def saved(
        self, session: Session, sandbox: Sandbox, begin: Begin = packing.make_folders
    ) -> AsyncIterator[Kept]:
        """Lets each interpreter of a session write its variables into a folder in the sandbox, for the scope.

        `begin` makes the folders of all languages.
        """
        variables, reasons = Kept(), dict[str, str]()
        if session.news.loss is not None and session.news.loss.language:
            variables.add(session.news.loss.language, Report(), "its interpreter ended")
        able = {name: state for name in session.used if (state := self._languages[name].handler.state) is not None}
        try:
            await begin(sandbox, able)
            for name in session.used:
                state = able.get(name)
                reasons[name] = await self._act(session, name, state.save) if state else UNABLE
            if not session.has(sandbox):
                raise SandboxLost(
                    "the sandbox ended while its variables were saved, and nothing is saved", "run code in it first"
                )
            variables.reasons = reasons
            yield variables
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(SandboxError):
                await packing.remove_folders(sandbox)
            raise

    async def open(self, home: Home, sandbox: Sandbox, saved: Collection[str], on_progress: OnProgress | None) -> Kept:
        """Lets a new interpreter of each language read its variables from its folder, which is removed then."""
        variables, whole = Kept(), bool(saved)
        for number, name in enumerate(saved, 1):
            language = self._languages.get(name)
            if language is None or (state := language.handler.state) is None:
                variables.add(name, Report(), "this server does not have the language")
                whole = False
                continue
            until = anyio.current_time() + _LONGEST
            for _ in range(_TRIES):
                seconds = max(1.0, until - anyio.current_time())
                reason = await self._act(home, name, state.open, on_progress, seconds)
                if not home.has(sandbox):
                    raise BadState("its variables end the sandbox when they are opened", "save it without them")
                report = await packing.take_report(sandbox, name, last=whole and number == len(saved))
                if report.kept is not None:
                    break
            variables.add(name, report, reason)
            whole = whole and report.kept is not None
        if not whole:
            await packing.remove_folders(sandbox)
        return variables

    async def _act(
        self,
        home: Home,
        name: str,
        code: str,
        on_progress: OnProgress | None = None,
        seconds: float = _LONGEST,
    ) -> str:
        """Runs a handler's own code in its language's interpreter; returns why it came to no end, if it did not."""
        places = await self._preparation.places(self._languages[name], on_progress)
        code = places.expand(code).replace("{folder}", f"{FOLDER}/{name}")
        outcome = await home.act(places, code, seconds)
        if outcome.ending in ("timeout", "cpu_limit"):
            return "it took longer than a run may take"
        if not outcome.alive:
            return f"the interpreter ended ({outcome.ending})"
        lines = outcome.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "the interpreter did not say what became of them"
