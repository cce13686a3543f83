"""`[rules]` of a profile, and the files of `configs/rules`; `configs/default.toml` says what every key means."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ..toml_model import Many, Section
from ..units import PositiveDuration

Severity = Literal["low", "medium", "high"]
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high")
"""From the least to the worst."""


class Rule(Section):
    """What code should not do, in the words of its language."""

    name: Annotated[str, Field(pattern="^[a-z][a-z0-9-]*$")]
    """Several rules may have the same, such as one for each language."""
    severity: Severity = "high"
    languages: Many[str] = ()
    """Empty: all."""
    modules: Many[str] = ()
    """Modules, packages and headers that are imported; each stands for all below it too."""
    calls: Many[str] = ()
    """Functions, methods, types and commands that are used, by their whole names."""
    strings: Many[str] = ()
    """Regular expressions that are searched for in literal strings."""
    patterns: Many[str] = ()
    """Regular expressions that are searched for in the code, its comments and strings left out."""
    lines: Many[str] = ()
    """The same with its strings, comments alone left out."""
    advice: str = ""
    """What to do instead."""

    @field_validator("modules", "calls")
    @classmethod
    def _named(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not name.strip() for name in value):
            raise ValueError("a name is empty")
        return value

    @field_validator("strings", "patterns", "lines")
    @classmethod
    def _compiles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value:
            # Later than the rest: most profiles have no pattern, and no use for the package.
            import regex

            for pattern in value:
                try:
                    compiled = regex.compile(pattern)
                except regex.error as error:
                    raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
                if compiled.search("") and compiled.search("x"):
                    raise ValueError(f"{pattern!r} finds something in every code")
        return value

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.modules or self.calls or self.strings or self.patterns or self.lines):
            raise ValueError("a rule needs modules, calls, strings, patterns or lines")
        return self


class RulesSection(Section):
    """Which code is refused before it runs, and which is warned of."""

    preset: str
    block: Literal["low", "medium", "high", ""]
    severity: Mapping[str, Literal["low", "medium", "high", "off"]]
    timeout: PositiveDuration
    pattern_timeout: PositiveDuration
    custom: Many[Rule]
