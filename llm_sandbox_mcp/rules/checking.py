"""Checks code against the rules before it runs, and refuses it, warns about it, or lets it pass."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio.abc import TaskGroup
from pydantic import BaseModel, NonNegativeInt, ValidationError

from ..aio.tasks import open_tasks
from ..base.errors import PolicyDenied, quoted
from ..base.messages import Note
from ..base.units import format_duration
from ..languages.languages import Language, Languages
from .process import Ended, OutOfTime, Worker
from .section import SEVERITIES, Rule, RulesSection

_FINDINGS_SHOWN = 5
"""Findings that are listed at most; the rest is only counted."""
_NOT_RUN = "the code did not run"


class _Hit(BaseModel):
    rule: NonNegativeInt
    line: int
    what: str


class _Answer(BaseModel):
    findings: tuple[_Hit, ...] = ()
    more: NonNegativeInt = 0
    slow: str = ""
    problem: str = ""
    """What is wrong with the code."""
    unready: str = ""
    """Why code of the language cannot be judged."""


class _Problems(BaseModel):
    problems: Mapping[str, str]


_ABSENT = "absent"
_SEARCHED = {"modules", "calls", "strings", "patterns", "lines"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found in code."""

    rule: Rule
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Unready:
    """Why all code of a language is refused: rules apply to it, but they cannot judge it."""

    cause: str
    step: str
    file: Path | None = None
    """The file with the mistake, if there is one."""


class Checker:
    """Checks code against the rules of one server. Made by `open_checker`."""

    def __init__(self, rules: Sequence[Rule], section: RulesSection, languages: Languages, tasks: TaskGroup) -> None:
        self._section = section
        self.rules = rules
        self._languages = languages
        self._tasks = tasks
        self._applying = {
            name: [number for number, rule in enumerate(rules) if not rule.languages or name in rule.languages]
            for name in languages
        }
        self.worker = Worker(
            {
                "rules": [rule.model_dump(include=_SEARCHED) for rule in rules],
                "languages": {
                    name: {
                        "rules": self._applying[name],
                        "query": (language.folder / "names.scm").read_text(encoding="utf-8"),
                        **language.handler.grammar.model_dump(exclude={"install"}),
                    }
                    for name, language in languages.items()
                    if self._applying[name] and language.handler.grammar is not None
                },
                "timeout": section.timeout,
                "pattern_timeout": section.pattern_timeout,
            }
        )

    async def unready(self) -> dict[str, Unready]:
        """The languages that rules apply to, but whose code cannot be judged here, each with the reason."""
        applying = {name: language for name, language in self._languages.items() if self._applying[name]}
        problems = {name: "" for name, language in applying.items() if language.handler.grammar is None}
        if len(applying) > len(problems):
            try:
                problems |= _Problems.model_validate_json(await self.worker.problems()).problems
            except (Ended, OutOfTime, ValidationError):
                cause = "but the process that judges code does not start"
                return dict.fromkeys(applying, Unready(cause, "make sure that it can use 1 GiB of memory"))
        return {name: _why(applying[name], problem) for name, problem in problems.items() if name in applying}

    async def check(self, language: Language, code: str) -> list[Note]:
        """The warnings about the code, one line each.

        Raises `PolicyDenied` for code that a rule refuses, and for code that cannot be judged.
        """
        return self._verdict(await self._ask(language, code))

    async def find(self, language: Language, code: str) -> list[Finding]:
        """What the rules find, or the first findings of many; raises `PolicyDenied` for code that cannot be judged."""
        answer = await self._ask(language, code)
        return [Finding(self.rules[hit.rule], hit.line, hit.what) for hit in answer.findings]

    async def _ask(self, language: Language, code: str) -> _Answer:
        if not self._applying[language.name]:
            return _Answer()
        if language.handler.grammar is None:
            raise self._unready(language, "")
        try:
            answer = _Answer.model_validate_json(await self.worker.ask({"language": language.name}, code.encode()))
        except OutOfTime:
            self._tasks.start_soon(self.worker.warm)
            limit = format_duration(self._section.timeout)
            raise PolicyDenied(
                f"the rules could not judge the code within {limit}, so {_NOT_RUN}", "make it shorter or simpler"
            ) from None
        except (Ended, ValidationError) as error:
            self._tasks.start_soon(self.worker.warm)
            how = str(error) if isinstance(error, Ended) else "gave an invalid answer"
            raise PolicyDenied(
                f"the process that judges code {how}, so {_NOT_RUN}", "change the code, or try again"
            ) from error
        if answer.slow:
            limit = format_duration(self._section.pattern_timeout)
            raise PolicyDenied(
                f"the pattern {quoted(answer.slow, 100)} of the rules takes longer than {limit} on this code, so "
                f"{_NOT_RUN}",
                "change the code, or ask the operator to change the pattern",
            )
        if answer.unready:
            raise self._unready(language, answer.unready)
        if answer.problem:
            raise PolicyDenied(
                f"the rules cannot judge the code, so {_NOT_RUN}: {quoted(answer.problem, 100)}", "make it simpler"
            )
        return answer

    def _verdict(self, answer: _Answer) -> list[Note]:
        blocked = self._blocking()
        refused = [hit for hit in answer.findings if self.rules[hit.rule].severity in blocked]
        if refused or (answer.more and blocked):
            shown = "; ".join(self._described(hit) for hit in (refused or answer.findings)[:_FINDINGS_SHOWN])
            rest = max(0, len(refused) - _FINDINGS_SHOWN) + answer.more
            more = f"; and {rest} more" if rest else ""
            raise PolicyDenied(f"refused before it ran: {shown}{more}", "remove that, or ask the operator to allow it")
        warnings = [
            Note("rule", f"warning: {self._described(hit)}", rule=self.rules[hit.rule].name, line=hit.line)
            for hit in answer.findings[:_FINDINGS_SHOWN]
        ]
        if (rest := len(answer.findings) - len(warnings) + answer.more) > 0:
            warnings.append(Note("rules", f"warning: the rules found {rest} more", number=rest))
        return warnings

    def _unready(self, language: Language, problem: str) -> PolicyDenied:
        why = _why(language, problem)
        return PolicyDenied(
            f"rules apply to {language.name}, {why.cause}, so its code cannot be judged and did not run", why.step
        )

    def _blocking(self) -> Sequence[str]:
        return SEVERITIES[SEVERITIES.index(self._section.block) :] if self._section.block else ()

    def _described(self, hit: _Hit) -> str:
        rule = self.rules[hit.rule]
        advice = f": {rule.advice}" if rule.advice else ""
        return f"line {hit.line} {_plain(hit.what)} (rule {rule.name}, severity {rule.severity}{advice})"


def _why(language: Language, problem: str) -> Unready:
    grammar = language.handler.grammar
    if grammar is None:
        step = "add a [grammar], or limit the rules of the profile to other languages"
        return Unready("but its handler.toml has no [grammar]", step)
    if problem == _ABSENT:
        return Unready("but its grammar is not installed", grammar.install)
    cause = f"but its grammar rejects its names.scm ({quoted(problem, 200)})"
    return Unready(cause, "fix that file as described in handlers/README.md", language.folder / "names.scm")


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


@asynccontextmanager
async def open_checker(rules: Sequence[Rule], section: RulesSection, languages: Languages) -> AsyncIterator[Checker]:
    """A checker that lasts until the block ends; if there are rules, its worker starts in the background."""
    async with open_tasks() as tasks:
        checker = Checker(rules, section, languages, tasks)
        if rules:
            tasks.start_soon(checker.worker.warm)
        try:
            yield checker
        finally:
            tasks.cancel_scope.cancel()
            await checker.worker.close()
