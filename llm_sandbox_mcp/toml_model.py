"""TOML files as frozen models: a mistake in a file is a `ProfileError` with file, key and reason."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Strict, ValidationError

from .errors import ProfileError
from .mistakes import first_mistake

T = TypeVar("T")

Many = Annotated[tuple[T, ...], Strict(False)]
"""A list in TOML, as an immutable tuple; its items are checked as strictly as other values."""


def _absolute(value: str) -> str:
    path = os.path.expanduser(value)
    if not os.path.isabs(path):
        raise ValueError(f"must be absolute; {path!r} is not")
    return path


def _absolute_if_any(value: str) -> str:
    return _absolute(value) if value else ""


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
"""An absolute path, or one that begins with a home directory such as `~`."""
OptionalPath = Annotated[str, AfterValidator(_absolute_if_any)]
"""The same; an empty string means no path."""

_REASONS = {"missing": "missing; add it", "tuple_type": "must be a list"}
"""Reasons for kinds of mistakes that pydantic's own messages do not explain well."""


class Section(BaseModel):
    """One table of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_Model = TypeVar("_Model", bound=Section)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: not valid TOML: {error}") from error


def as_model(model: type[_Model], settings: Mapping[str, Any], path: Path, *, reference: str) -> _Model:
    """The settings as a model; `path` is their file, and `reference` names the place that lists all keys."""
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        mistake = first_mistake(error)
        reason = _REASONS.get(mistake.kind, mistake.reason)
        if mistake.kind == "extra_forbidden":
            reason = f"unknown key; see {reference} for all keys"
        raise ProfileError(f"{path}: {': '.join(filter(None, (mistake.key, reason)))}", mistake.key, reason) from error
