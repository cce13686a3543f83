"""`[rules]` of a profile, and the files of `configs/rules`; `configs/default.toml` explains every key."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ..base.units import PositiveDuration
from ..toml.model import Many, Section

Severity = Literal["low", "medium", "high"]
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high")
"""From the least to the most severe."""


class Rule(Section):
    """What code should not do, in terms of its language."""

    name: Annotated[str, Field(pattern="^[a-z][a-z0-9-]*$")]
    """Several rules can have the same name, such as one rule for each language."""
    severity: Severity = "high"
    languages: Many[str] = ()
    """Empty: all languages."""
    modules: Many[str] = ()
    """Modules, packages and headers that are imported; each includes everything below it."""
    calls: Many[str] = ()
    """Functions, methods, types and commands that are used, by their full names."""
    strings: Many[str] = ()
    """Regular expressions that are searched for in literal strings."""
    patterns: Many[str] = ()
    """Regular expressions that are searched for in the code without its comments and strings."""
    lines: Many[str] = ()
    """Regular expressions that are searched for in the code without its comments, but with its strings."""
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
            # Imported only here: most profiles have no pattern and do not need the package.
            import regex

            for pattern in value:
                try:
                    compiled = regex.compile(pattern)
                except regex.error as error:
                    raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
                if compiled.search("") and compiled.search("x"):
                    raise ValueError(f"{pattern!r} matches any code")
        return value

    @model_validator(mode="after")
    def _searches_something(self) -> Self:
        if not (self.modules or self.calls or self.strings or self.patterns or self.lines):
            raise ValueError("a rule needs modules, calls, strings, patterns or lines")
        return self


class RulesSection(Section):
    """Which code is refused before it runs, and which code causes a warning."""

    preset: str
    block: Literal["low", "medium", "high", ""]
    severity: Mapping[str, Literal["low", "medium", "high", "off"]]
    timeout: PositiveDuration
    pattern_timeout: PositiveDuration
    custom: Many[Rule]
