"""The operator's profile: TOML, read once, into frozen models.

`configs/default.toml` holds every key and its value; a profile is laid over it, so that the models need no defaults of
their own and the documented file cannot be wrong.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, PrivateAttr, ValidationError, field_validator

from .errors import ProfileError
from .folders import CONFIGS
from .policy import Policy
from .units import Duration, Size


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class BackendSection(_Section):
    """Which engine makes the sandboxes."""

    name: Literal["embedded"]


class Limits(_Section):
    """What one sandbox and one run may use; the meaning of each key stands in `configs/default.toml`."""

    memory: Size
    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    pids: PositiveInt
    disk: Size
    timeout: Duration
    output: Size
    shown: Size
    code: Size
    install_timeout: Duration

    @field_validator("memory", "disk", "timeout", "output", "shown", "code", "install_timeout")
    @classmethod
    def _above_zero(cls, value: float) -> float:
        if value <= 0:
            raise ValueError("must be above zero")
        return value

    def policy(self) -> Policy:
        """The part of the limits that a sandbox and its runs are held to."""
        return Policy(
            memory=self.memory,
            cpus=self.cpus,
            pids=self.pids,
            disk=self.disk,
            timeout=self.timeout,
            output=self.output,
        )


class SessionLimits(_Section):
    """How many sessions live, and for how long."""

    max: PositiveInt
    idle_timeout: Duration

    @field_validator("idle_timeout")
    @classmethod
    def _above_zero(cls, value: float) -> float:
        if value <= 0:
            raise ValueError("must be above zero")
        return value


class ArtifactLimits(_Section):
    """How much of what runs leave behind is kept."""

    files: PositiveInt
    file_size: Size
    store: Size


class FilesSection(_Section):
    """Folders of the host that callers on stdio may copy from and to."""

    roots: tuple[str, ...]

    @field_validator("roots", mode="before")
    @classmethod
    def _absolute(cls, value: object) -> object:
        if not isinstance(value, list) or not all(isinstance(root, str) for root in value):
            raise ValueError("must be a list of folders")
        folders = [os.path.expanduser(root) for root in value]
        if relative := [folder for folder in folders if not os.path.isabs(folder)]:
            raise ValueError(f"must be absolute; {relative[0]!r} is not")
        return tuple(folders)


class HandlersSection(_Section):
    """Where further languages are."""

    folders: tuple[str, ...]

    @field_validator("folders", mode="before")
    @classmethod
    def _tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class LanguageSection(_Section):
    """What the operator sets for one language."""

    libraries: tuple[str, ...] = ()
    index: str = ""
    env: Mapping[str, str] = {}

    @field_validator("libraries", mode="before")
    @classmethod
    def _tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class EmbeddedSection(_Section):
    """Settings of the backend on bubblewrap."""

    bwrap: str
    cache: str
    runtime: str


@dataclass(frozen=True, slots=True)
class _Origin:
    """The file of a profile. Profiles with the same settings are equal wherever they come from."""

    path: Path | None = field(default=None, compare=False)


class Profile(_Section):
    """Everything that an operator decides."""

    backend: BackendSection
    limits: Limits
    sessions: SessionLimits
    artifacts: ArtifactLimits
    files: FilesSection
    handlers: HandlersSection
    languages: Mapping[str, LanguageSection]
    embedded: EmbeddedSection

    _origin: _Origin = PrivateAttr(_Origin())

    def language(self, name: str) -> LanguageSection:
        """The operator's settings for a language, empty ones where the profile has none."""
        return self.languages.get(name) or LanguageSection()

    def check_languages(self, known: Iterable[str]) -> None:
        """Raises `ProfileError` for settings of an unknown language: a typing error must not pass in silence."""
        known = list(known)
        for name in self.languages:
            if name not in known:
                where = f"{self._origin.path}: " if self._origin.path else ""
                raise ProfileError(f"{where}languages.{name}: no such language; there are: {', '.join(known)}")


def load_profile(source: str | None = None) -> Profile:
    """Reads a profile: a file, or the name of one in `configs/`; nothing means the defaults.

    Raises `ProfileError` naming file, key and reason.
    """
    default = CONFIGS / "default.toml"
    settings = _read(default)
    path = default
    if source:
        path = _locate(source)
        settings = _merge(settings, _read(path))
    try:
        profile = Profile.model_validate(settings)
        profile._origin = _Origin(path)
        return profile
    except ValidationError as error:
        raise ProfileError(f"{path}: {_explain(error)}") from error


def _locate(source: str) -> Path:
    if source.endswith(".toml") or os.sep in source:
        return Path(source)
    named = CONFIGS / f"{source}.toml"
    if not named.is_file():
        known = ", ".join(sorted(path.stem for path in CONFIGS.glob("*.toml")))
        raise ProfileError(f"no profile is named {source!r}; there are: {known}; or give a file that ends with .toml")
    return named


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: not valid TOML: {error}") from error


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{key}: no such key; `llm-sandbox-mcp profile show default` lists them all"
    return f"{key}: {first['msg'].removeprefix('Value error, ')}"
