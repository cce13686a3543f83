"""Code held against the rules before it runs: refused, warned of, or let pass."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio.abc import TaskGroup
from pydantic import BaseModel, NonNegativeInt, ValidationError

from ..errors import PolicyDenied, quoted
from ..languages import Language, Languages
from ..messages import Note
from ..tasks import open_tasks
from ..units import format_duration
from .process import Ended, OutOfTime, Worker
from .section import SEVERITIES, Rule, RulesSection

_NAMED = 5
"""Findings that one line names."""
_NOT_RUN = "it did not run"


class _Hit(BaseModel):
    rule: NonNegativeInt
    line: int
    what: str


class _Answer(BaseModel):
    findings: tuple[_Hit, ...] = ()
    more: NonNegativeInt = 0
    slow: str = ""
    problem: str = ""
    """With the code."""
    unready: str = ""
    """With the language."""


class _Hello(BaseModel):
    problems: Mapping[str, str]


_ABSENT = "absent"
_SEARCHED = {"modules", "calls", "strings", "patterns", "lines"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in code."""

    rule: Rule
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Unready:
    """Why code of a language that rules apply to is refused whatever it says."""

    cause: str
    step: str
    file: Path | None = None
    """The file that is wrong, where one is."""


class Checker:
    """The rules of one server. Made by `open_checker`."""

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
        """The languages that rules apply to and whose code cannot be judged here."""
        applying = {name: language for name, language in self._languages.items() if self._applying[name]}
        problems = {name: "" for name, language in applying.items() if language.handler.grammar is None}
        if len(applying) > len(problems):
            try:
                problems |= _Hello.model_validate_json(await self.worker.hello()).problems
            except (Ended, OutOfTime, ValidationError):
                cause = "and the process that judges code does not start"
                return dict.fromkeys(applying, Unready(cause, "look for what keeps it from 1 GiB of memory"))
        return {name: _why(applying[name], problem) for name, problem in problems.items() if name in applying}

    async def check(self, language: Language, code: str) -> list[Note]:
        """What is to be warned of, a line each.

        Raises `PolicyDenied` for code that a rule refuses, and for code that cannot be judged.
        """
        return self._verdict(await self._ask(language, code))

    async def find(self, language: Language, code: str) -> list[Finding]:
        """What the rules find, the first of it where it is much; `PolicyDenied` for code that cannot be judged."""
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
                f"the rules could not judge the code within {limit}, so {_NOT_RUN}; make it shorter or simpler"
            ) from None
        except (Ended, ValidationError) as error:
            self._tasks.start_soon(self.worker.warm)
            how = str(error) if isinstance(error, Ended) else "gave no sensible answer"
            raise PolicyDenied(
                f"the process that judges code {how}, so {_NOT_RUN}; change the code, or try once more"
            ) from error
        if answer.slow:
            limit = format_duration(self._section.pattern_timeout)
            raise PolicyDenied(
                f"the pattern {quoted(answer.slow, 100)} of the rules takes longer than {limit} on this code, so "
                f"{_NOT_RUN}; change the code, or have the operator change the pattern"
            )
        if answer.unready:
            raise self._unready(language, answer.unready)
        if answer.problem:
            raise PolicyDenied(
                f"the rules cannot judge the code, so {_NOT_RUN}: {quoted(answer.problem, 100)}; make it simpler"
            )
        return answer

    def _verdict(self, answer: _Answer) -> list[Note]:
        blocked = self._blocking()
        refused = [hit for hit in answer.findings if self.rules[hit.rule].severity in blocked]
        if refused or (answer.more and blocked):
            shown = "; ".join(self._told(hit) for hit in (refused or answer.findings)[:_NAMED])
            rest = max(0, len(refused) - _NAMED) + answer.more
            more = f"; and {rest} more" if rest else ""
            raise PolicyDenied(f"refused before it ran: {shown}{more}; leave that out, or ask the operator for it")
        warnings = [
            Note("rule", f"warning: {self._told(hit)}", rule=self.rules[hit.rule].name, line=hit.line)
            for hit in answer.findings[:_NAMED]
        ]
        if (rest := len(answer.findings) - len(warnings) + answer.more) > 0:
            warnings.append(Note("rules", f"warning: the rules found {rest} more", number=rest))
        return warnings

    def _unready(self, language: Language, problem: str) -> PolicyDenied:
        why = _why(language, problem)
        return PolicyDenied(
            f"rules apply to {language.name}, {why.cause}, so that code cannot be judged and {_NOT_RUN}; {why.step}"
        )

    def _blocking(self) -> Sequence[str]:
        return SEVERITIES[SEVERITIES.index(self._section.block) :] if self._section.block else ()

    def _told(self, hit: _Hit) -> str:
        rule = self.rules[hit.rule]
        advice = f": {rule.advice}" if rule.advice else ""
        return f"line {hit.line} {_plain(hit.what)} (rule {rule.name}, severity {rule.severity}{advice})"


def _why(language: Language, problem: str) -> Unready:
    grammar = language.handler.grammar
    if grammar is None:
        step = "add one, or name other languages in the rules of the profile"
        return Unready("whose handler.toml has no [grammar]", step)
    if problem == _ABSENT:
        return Unready("whose grammar is not installed", grammar.install)
    cause = f"whose grammar does not take its names.scm ({quoted(problem, 200)})"
    return Unready(cause, "fix that file, as handlers/README.md says", language.folder / "names.scm")


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


@asynccontextmanager
async def open_checker(rules: Sequence[Rule], section: RulesSection, languages: Languages) -> AsyncIterator[Checker]:
    """A checker for as long as the scope lasts; its worker starts beside, where there are rules at all."""
    async with open_tasks() as tasks:
        checker = Checker(rules, section, languages, tasks)
        if rules:
            tasks.start_soon(checker.worker.warm)
        try:
            yield checker
        finally:
            tasks.cancel_scope.cancel()
            await checker.worker.close()
