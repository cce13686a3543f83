"""The operator's profile: TOML, read once, into frozen models.

`configs/default.toml` contains every key with its default; a profile is merged over it. So the models need no defaults,
and the documentation in that file cannot be wrong.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr, SerializeAsAny

from ..backends import BACKENDS, candidates, engine
from ..backends.layout import DATA
from ..backends.settings import Settings
from ..base.errors import MissingPackage, ProfileError
from ..base.open_folders import View, views_of
from ..base.policy import Policy
from ..base.similar import available
from ..host.folders import CONFIGS
from ..rules.presets import rules_of
from ..rules.section import RulesSection
from ..toml.model import Section, as_model, read_toml
from .sections import (
    ArtifactLimits,
    AuditSection,
    BackendSection,
    FilesSection,
    HandlersSection,
    HttpSection,
    LanguageSection,
    Limits,
    NetworkSection,
    PoolLimits,
    ServerSection,
    SessionLimits,
    ToolsSection,
)

_DEFAULT = "`llm-sandbox-mcp profile show default`"
"""Where a person finds all keys."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """The file of a profile. It is not compared: profiles with the same settings are equal."""

    path: Path | None = field(default=None, compare=False)
    with_libraries: tuple[str, ...] = field(default=(), compare=False)
    """The languages for which the file itself lists libraries."""
    unread: tuple[str, ...] = field(default=(), compare=False)
    """Tables of the file that are about engines it does not use."""
    limits: tuple[str, ...] = field(default=(), compare=False)
    """The keys of [limits] that the operator wrote: those of an included profile are not."""


class _Choice(Section):
    """The table that decides which other tables exist."""

    backend: BackendSection


class _Core(Section):
    """The tables that do not belong to an engine."""

    backend: BackendSection
    server: ServerSection
    limits: Limits
    network: NetworkSection
    sessions: SessionLimits
    pool: PoolLimits
    artifacts: ArtifactLimits
    files: FilesSection
    tools: ToolsSection
    http: HttpSection
    audit: AuditSection
    rules: RulesSection
    handlers: HandlersSection
    languages: Mapping[str, LanguageSection]


class Profile(_Core):
    """Everything that an operator decides."""

    engines: Mapping[str, SerializeAsAny[Settings]]
    """The settings of each backend that can be used: of the named one, or of all those that `auto` tries."""

    _origin: _Origin = PrivateAttr(_Origin())

    @property
    def unread(self) -> tuple[str, ...]:
        """The tables of the file that were not checked: they are about engines that the profile does not use."""
        return self._origin.unread

    @property
    def own_limits(self) -> tuple[str, ...]:
        """The limits that are in the operator's own file, by their keys; none for an included profile."""
        return self._origin.limits

    def preload(self, language: str) -> tuple[Sequence[str], bool]:
        """The modules that warm interpreters of a language import, and whether the operator chose others than we do."""
        modules = self.language(language).preload
        return modules, list(modules) != _defaults()["languages"].get(language, {}).get("preload", [])

    def mistake(self, key: str, reason: str, step: str = "") -> ProfileError:
        """The error for a value that fits its model but not this machine or the other values."""
        return ProfileError(reason, step, file=self._origin.path, key=key)

    def policy(self) -> Policy:
        """The policy that applies to every sandbox and every run."""
        return self.limits.policy().model_copy(update={"network": self.network.granted()})

    @property
    def views(self) -> tuple[View, ...]:
        """How code sees the folders that the operator opened."""
        return tuple(views_of(self.files.opened, DATA))

    @property
    def starts(self) -> Mapping[str, str]:
        """The saved sessions that others start from, by language."""
        return {name: section.start for name, section in self.languages.items() if section.start}

    def language(self, name: str) -> LanguageSection:
        """The operator's settings for a language; empty ones if the profile has none."""
        return self.languages.get(name) or LanguageSection()

    def check_languages(self, prepared: Mapping[str, bool], preloading: Collection[str]) -> None:
        """Raises `ProfileError` for settings that would have no effect: a mistake must not pass silently.

        `prepared` maps each known language to whether libraries are prepared for it; `preloading` are those whose
        interpreters can import modules ahead.
        """
        for mistake in self.language_mistakes(prepared, preloading):
            raise mistake

    def language_mistakes(self, prepared: Mapping[str, bool], preloading: Collection[str]) -> Iterator[ProfileError]:
        """An error for each setting about a language that would have no effect."""
        named = [(f"languages.{name}", name) for name in self.languages]
        named += [("pool.languages", name) for name in self.pool.languages]
        named += [(f"pool.libraries.{name}", name) for name in self.pool.libraries]
        for settings in self.engines.values():
            named += settings.languages().items()
        for number, rule in enumerate(self.rules.custom):
            named += [(f"rules.custom.{number}.languages", name) for name in rule.languages]
        for key, name in named:
            if name not in prepared:
                yield self.mistake(key, f"unknown language {name!r}", available(name, prepared))
        for name in self.pool.libraries:
            if name not in self.pool.languages:
                reason = f"no sandbox is kept warm for {name}"
                yield self.mistake(f"pool.libraries.{name}", reason, "add it to pool.languages")
        for name in self._origin.with_libraries:
            if not prepared.get(name, True):
                reason = f"libraries cannot be prepared for {name}"
                step = "remove the key, and install them in sessions"
                yield self.mistake(f"languages.{name}.libraries", reason, step)
        for name in self.languages:
            modules, chosen = self.preload(name)
            if modules and chosen and name in prepared and name not in preloading:
                reason = f"interpreters of {name} cannot import modules before any code asks"
                yield self.mistake(f"languages.{name}.preload", reason, "remove the key")


@cache
def _defaults() -> Mapping[str, Any]:
    return read_toml(CONFIGS / "default.toml")


def load_profile(source: str | None = None, over: Mapping[str, Any] | None = None) -> Profile:
    """Reads a profile from a file, or by the name of one in `configs/`; without a source, the defaults apply.

    `over` contains settings of a program that replace those of the file, in the format of the file. Raises
    `ProfileError` with file, key and reason.
    """
    path, default = CONFIGS / "default.toml", _defaults()
    own: Mapping[str, Any] = {}
    if source:
        path = _locate(source)
        own = read_toml(path)
    settings = _merge(_merge(default, own), over or {})
    name = as_model(_Choice, {"backend": settings["backend"]}, path, reference=_DEFAULT, example=default).backend.name
    try:
        models = {one: engine(one).Settings for one in candidates(name)}
    except MissingPackage:
        raise
    except ProfileError as error:
        raise ProfileError(error.cause, error.step, file=path, key="backend.name") from error
    read = {table for model in models.values() for table in model.model_fields}
    if taken := sorted(read & _Core.model_fields.keys()):
        reason = f"{name} defines the table [{taken[0]}], which is reserved for the server"
        raise ProfileError(reason, "update its package", file=path, key="backend.name")
    of_engines = read | {table for table in default if table not in _Core.model_fields}
    rest = {table: value for table, value in settings.items() if table not in of_engines}
    core = as_model(_Core, rest, path, reference=_DEFAULT, example=default)
    engines = {
        one: as_model(
            model,
            {table: settings.get(table, {}) for table in model.model_fields},
            path,
            reference=_reference(one),
            example=default,
        )
        for one, model in models.items()
    }
    rules_of(core.rules, path)
    profile = Profile(**dict(core), engines=engines)
    named = own.get("languages", {})
    limits: Mapping[str, Any] = {} if path.resolve().parent == CONFIGS else own.get("limits", {})
    profile._origin = _Origin(
        path,
        tuple(name for name, section in named.items() if section.get("libraries")),
        tuple(table for table in own if table in of_engines - read),
        tuple(limits.keys() - (over or {}).get("limits", {}).keys()),
    )
    return profile


def _reference(engine: str) -> str:
    if engine not in BACKENDS:
        return "the documentation of the backend"
    return f"`llm-sandbox-mcp profile show {engine}`" if (CONFIGS / f"{engine}.toml").is_file() else _DEFAULT


def _locate(source: str) -> Path:
    if source.endswith(".toml") or os.sep in source:
        return Path(source)
    named = CONFIGS / f"{source}.toml"
    if not named.is_file():
        known = available(source, sorted(path.stem for path in CONFIGS.glob("*.toml")))
        raise ProfileError(f"unknown profile {source!r}", f"{known}; or give a file that ends with .toml")
    return named


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
