"""What code may not do, in LLM Sandbox's words; it becomes rules of the profile, which hold in every run."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import regex

from ..languages import included_languages
from ..rules.checking import Finding
from ..rules.presets import preset_names
from .exceptions import InvalidRegexPatternError, ValidationError, translated
from .model import Model
from .overlay import Overlay

_NAME = re.compile(r"@?[^<>=!~\[@;: ]+")
"""Of a library, without extras and versions."""


class SecurityIssueSeverity(IntEnum):
    """How bad it is that something is found; from the policy's threshold on, code that has it is refused."""

    SAFE = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3


@dataclass
class SecurityPattern(Model):
    """A regular expression that is searched for in code, its comments left out."""

    pattern: str
    description: str
    severity: SecurityIssueSeverity

    def __post_init__(self) -> None:
        self.severity = _severity("severity", self.severity)
        if not isinstance(self.pattern, str):
            raise ValidationError(f"pattern is {str(self.pattern)[:40]}; give a text")
        try:
            regex.compile(self.pattern)
        except regex.error as error:
            raise InvalidRegexPatternError(f"{self.pattern!r} is no regular expression: {error}; fix it") from error


@dataclass
class RestrictedModule(Model):
    """A module that code may not import, however it is written, and that no session may install."""

    name: str
    description: str
    severity: SecurityIssueSeverity

    def __post_init__(self) -> None:
        self.severity = _severity("severity", self.severity)
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValidationError(f"name is {str(self.name)[:40]!r}; give that of a module")


@dataclass
class SecurityPolicy(Model):
    """What is looked for in code before each run; what is as bad as the threshold, or worse, keeps it from running.

    A session has it as it is when the session is made. With the threshold SAFE nothing is refused, and `is_safe` tells.
    Patterns and modules may be tables of their fields, as JSON has them.
    """

    severity_threshold: SecurityIssueSeverity = SecurityIssueSeverity.SAFE
    patterns: list[SecurityPattern] | None = None
    restricted_modules: list[RestrictedModule] | None = None
    preset: str = ""
    """Rules that come along, beside those above; the names are those that `get_security_policy` takes."""

    def __post_init__(self) -> None:
        self.severity_threshold = _severity("severity_threshold", self.severity_threshold)
        self.patterns = _each(SecurityPattern, "patterns", self.patterns)
        self.restricted_modules = _each(RestrictedModule, "restricted_modules", self.restricted_modules)

    def add_pattern(self, pattern: SecurityPattern) -> None:
        """Adds a pattern."""
        self.patterns = [*(self.patterns or ()), SecurityPattern.model_validate(pattern)]

    def add_restricted_module(self, module: RestrictedModule) -> None:
        """Adds a module."""
        self.restricted_modules = [*(self.restricted_modules or ()), RestrictedModule.model_validate(module)]

    def forbids(self, library: str) -> bool:
        """Whether a library, in any version, is one of the restricted modules."""
        name = _NAME.match(library)
        return any(name is not None and name[0] == module.name for module in self.restricted_modules or ())


def get_security_policy(name: str) -> SecurityPolicy:
    """A policy of rules that come along, which refuses what is of medium severity or worse.

    The names: development, production, strict, educational, data_science, web_scraping, minimal.
    """
    if name not in preset_names():
        raise ValidationError(f"there is no security policy {name!r}; there are: {', '.join(preset_names())}")
    return SecurityPolicy(SecurityIssueSeverity.MEDIUM, preset=name)


def validate_package_name(library: str, language: str) -> str:
    """The library's name without blanks around it.

    Raises `ValidationError` for what no package manager may be given, `LanguageNotSupportedError` for a language that
    there is not.
    """
    with translated():
        manager = included_languages()[str(language)].handler.libraries
    name = library.strip() if isinstance(library, str) else ""
    if manager is None or not re.fullmatch(manager.name_pattern, name):
        raise ValidationError(f"{library!r} is no plain name of a {language} library with an optional version")
    return name


def apply(overlay: Overlay, policy: SecurityPolicy) -> None:
    """Makes the policy the rules of a profile, one for each pattern and module."""
    threshold = SecurityIssueSeverity(policy.severity_threshold)
    overlay.set("security_policy", "rules.preset", policy.preset)
    overlay.set("security_policy", "rules.block", threshold.name.lower() if threshold else "")
    overlay.set("security_policy", "rules.custom", list(_rules(policy)))


def patterns_of(policy: SecurityPolicy, findings: Sequence[Finding]) -> list[SecurityPattern]:
    """The patterns of a policy that were found, each once; those of its preset are made from its rules."""
    own = {rule["name"]: pattern for rule, pattern in zip(_rules(policy), _patterns(policy), strict=True)}
    found: dict[str, SecurityPattern] = {}
    for finding in findings:
        rule = finding.rule
        severity = SecurityIssueSeverity[rule.severity.upper()]
        said = f"{rule.name}: {finding.what}"
        found[rule.name] = own.get(rule.name) or SecurityPattern(regex.escape(finding.what), said, severity)
    return list(found.values())


_Kind = TypeVar("_Kind", bound=Model)


def _each(kind: type[_Kind], name: str, values: object) -> list[_Kind] | None:
    if values is None:
        return None
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ValidationError(f"{name} is {str(values)[:40]}; give a list")
    return [kind.model_validate(value) for value in values]


def _severity(name: str, value: object) -> SecurityIssueSeverity:
    for severity in SecurityIssueSeverity:
        if severity == value:
            return severity
    raise ValidationError(f"{name} is {str(value)[:40]}; give a SecurityIssueSeverity, or its number from 0 to 3")


def _rules(policy: SecurityPolicy) -> Iterator[dict[str, Any]]:
    searched = [("lines", one.pattern) for one in policy.patterns or () if one.pattern]
    named = [("modules", one.name) for one in policy.restricted_modules or ()]
    for number, ((key, text), one) in enumerate(zip([*searched, *named], _patterns(policy), strict=True)):
        # No rule has a lesser severity than low; SAFE is for what no threshold refuses.
        severity = "low" if one.severity is SecurityIssueSeverity.SAFE else one.severity.name.lower()
        yield {"name": f"policy-{number}", "severity": severity, key: [text], "advice": one.description}


def _patterns(policy: SecurityPolicy) -> Iterator[SecurityPattern]:
    yield from (one for one in policy.patterns or () if one.pattern)
    for one in policy.restricted_modules or ():
        yield SecurityPattern(rf"\b{regex.escape(one.name)}\b", one.description, one.severity)
