"""Security policies of LLM Sandbox; they become rules of the profile, which apply to every run."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import regex

from ...languages.languages import included_languages
from ...rules.checking import Finding
from ...rules.presets import preset_names
from .exceptions import InvalidRegexPatternError, ValidationError
from .model import Model
from .overlay import Overlay

_PLAIN = r"(?!.*//)[A-Za-z0-9][A-Za-z0-9._+:@/-]*"
"""A library of a language that is not included: no address, no option, no space, no sign of the shell."""
_NAME = re.compile(r"@?[^<>=!~\[@;: ]+")
"""The name of a library, without extras and versions."""


class SecurityIssueSeverity(IntEnum):
    """How severe a finding is; from the policy's threshold on, the code is refused."""

    SAFE = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3


@dataclass
class SecurityPattern(Model):
    """A regular expression that is searched for in code without its comments."""

    pattern: str
    description: str
    severity: SecurityIssueSeverity

    def __post_init__(self) -> None:
        self.severity = _severity("severity", self.severity)
        if not isinstance(self.pattern, str):
            raise ValidationError(f"pattern is {str(self.pattern)[:40]}", "give a text")
        try:
            regex.compile(self.pattern)
            re.compile(self.pattern)  # which refuses two groups of one name
        except (regex.error, re.error) as error:
            raise InvalidRegexPatternError(
                f"{self.pattern!r} is not a regular expression: {error}", "fix it"
            ) from error


@dataclass
class RestrictedModule(Model):
    """A module that code must not import, in any spelling, and that no session may install."""

    name: str
    description: str
    severity: SecurityIssueSeverity

    def __post_init__(self) -> None:
        self.severity = _severity("severity", self.severity)
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValidationError(f"name is {str(self.name)[:40]!r}", "give the name of a module")


@dataclass
class SecurityPolicy(Model):
    """What is searched for in code before each run; findings with the threshold's severity or more refuse the code.

    A session uses the policy as it is when the session is made. With the threshold SAFE nothing is refused; `is_safe`
    still returns the findings. Patterns and modules can be dicts of their fields, as in JSON.
    """

    severity_threshold: SecurityIssueSeverity = SecurityIssueSeverity.SAFE
    patterns: list[SecurityPattern] | None = None
    restricted_modules: list[RestrictedModule] | None = None
    preset: str = ""
    """Included rules in addition to those above; the names are the same as for `get_security_policy`."""

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
    """A policy of included rules, which refuses code with findings of medium or high severity.

    The names: development, production, strict, educational, data_science, web_scraping, minimal.
    """
    if name not in preset_names():
        raise ValidationError(f"unknown security policy {name!r}", f"available: {', '.join(preset_names())}")
    return SecurityPolicy(SecurityIssueSeverity.MEDIUM, preset=name)


def validate_package_name(library: str, language: str) -> str:
    """The library's name without surrounding spaces.

    Raises `ValidationError` for a name that must not be passed to a package manager.
    """
    named = str(language).lower()
    known = included_languages().get("cpp" if named == "c" else named)
    manager = known and known.handler.libraries
    pattern = manager.name_pattern if manager else "" if known else _PLAIN
    name = library.strip() if isinstance(library, str) else ""
    # Here, a name of Maven need not have a version.
    names = (name, f"{name}:1") if known and known.name == "java" else (name,)
    if not name or not any(re.fullmatch(pattern, one) for one in names):
        reason = f"{library!r} is not a valid {language} package"
        raise ValidationError(reason, "give a plain name with an optional version")
    return name


def apply(overlay: Overlay, policy: SecurityPolicy) -> None:
    """Makes the policy the rules of a profile, one for each pattern and module."""
    threshold = SecurityIssueSeverity(policy.severity_threshold)
    overlay.set("security_policy", "rules.preset", policy.preset)
    overlay.set("security_policy", "rules.block", threshold.name.lower() if threshold else "")
    overlay.set("security_policy", "rules.custom", list(_rules(policy)))


def patterns_of(policy: SecurityPolicy, findings: Sequence[Finding]) -> list[SecurityPattern]:
    """The patterns of a policy that were found, each once; rules of its preset are returned as patterns too."""
    own = {rule["name"]: pattern for rule, pattern in zip(_rules(policy), _patterns(policy), strict=True)}
    found: dict[str, SecurityPattern] = {}
    for finding in findings:
        rule = finding.rule
        severity = SecurityIssueSeverity[rule.severity.upper()]
        description = f"{rule.name}: {finding.what}"
        found[rule.name] = own.get(rule.name) or SecurityPattern(regex.escape(finding.what), description, severity)
    return list(found.values())


_Kind = TypeVar("_Kind", bound=Model)


def _each(kind: type[_Kind], name: str, values: object) -> list[_Kind] | None:
    if values is None:
        return None
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ValidationError(f"{name} is {str(values)[:40]}", "give a list")
    return [kind.model_validate(value) for value in values]


def _severity(name: str, value: object) -> SecurityIssueSeverity:
    for severity in SecurityIssueSeverity:
        if severity == value:
            return severity
    raise ValidationError(f"{name} is {str(value)[:40]}", "give a SecurityIssueSeverity, or its number from 0 to 3")


def _rules(policy: SecurityPolicy) -> Iterator[dict[str, Any]]:
    searched = [("lines", one.pattern) for one in policy.patterns or () if one.pattern]
    named = [("modules", one.name) for one in policy.restricted_modules or ()]
    for number, ((key, text), one) in enumerate(zip([*searched, *named], _patterns(policy), strict=True)):
        # The lowest severity of a rule is low; SAFE patterns become low too.
        severity = "low" if one.severity is SecurityIssueSeverity.SAFE else one.severity.name.lower()
        yield {"name": f"policy-{number}", "severity": severity, key: [text], "advice": one.description}


def _patterns(policy: SecurityPolicy) -> Iterator[SecurityPattern]:
    yield from (one for one in policy.patterns or () if one.pattern)
    for one in policy.restricted_modules or ():
        yield SecurityPattern(rf"\b{regex.escape(one.name)}\b", one.description, one.severity)
