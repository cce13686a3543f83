"""The rules in force: those of a preset, with its severities, and the profile's own."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..base.errors import ProfileError
from ..base.similar import available
from ..host.folders import CONFIGS
from ..toml.model import Many, Section, as_model, read_toml
from .section import Rule, RulesSection, Severity

FOLDER = CONFIGS / "rules"
CATALOGUE = FOLDER / "catalogue.toml"
_KEYS = "[rules] of configs/default.toml"


class _Catalogue(Section):
    rule: Many[Rule]


class _Preset(Section):
    severity: Mapping[str, Severity]


def preset_names() -> list[str]:
    """The names of the included presets."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path != CATALOGUE)


def rules_of(section: RulesSection, file: Path | None = None) -> tuple[Rule, ...]:
    """The rules in force, each with its severity; none if the profile has no preset and no rules of its own.

    Raises `ProfileError` for an unknown preset or an unknown name of a rule; `file` is where the section comes from.
    """
    rules = list(section.custom)
    severities: dict[str, str] = {}
    if section.preset:
        if section.preset not in (known := preset_names()):
            reason, step = f"unknown preset {section.preset!r}", available(section.preset, known)
            raise ProfileError(reason, step, file=file, key="rules.preset")
        path = FOLDER / f"{section.preset}.toml"
        catalogue = as_model(_Catalogue, read_toml(CATALOGUE), CATALOGUE, reference=_KEYS).rule
        preset = as_model(_Preset, read_toml(path), path, reference=_KEYS).severity
        _check(path, "severity", preset, catalogue)
        severities |= preset
        rules = [rule for rule in catalogue if rule.name in {*preset, *section.severity}] + rules
    _check(file, "rules.severity", section.severity, rules)
    severities |= section.severity
    return tuple(
        Rule.model_validate({**rule.model_dump(), "severity": severities.get(rule.name, rule.severity)})
        for rule in rules
        if severities.get(rule.name) != "off"
    )


def _check(file: Path | None, key: str, severity: Mapping[str, str], rules: Iterable[Rule]) -> None:
    known = dict.fromkeys(rule.name for rule in rules)
    for name in severity:
        if name not in known:
            raise ProfileError(f"unknown rule {name!r}", available(name, known), file=file, key=f"{key}.{name}")
