"""TOML files as frozen models: a mistake in one is a `ProfileError` that names file, key and reason."""

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
"""A list, which TOML has, as a tuple, which cannot change; what is in it is taken as strictly as all else."""


def _absolute(value: str) -> str:
    path = os.path.expanduser(value)
    if not os.path.isabs(path):
        raise ValueError(f"must be absolute; {path!r} is not")
    return path


def _absolute_if_any(value: str) -> str:
    return _absolute(value) if value else ""


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
"""A path from the root, or from a home such as `~`."""
OptionalPath = Annotated[str, AfterValidator(_absolute_if_any)]
"""The same; empty stands for none."""

_REASONS = {"missing": "missing; it is needed", "tuple_type": "must be a list"}
"""For kinds of mistakes that the models' own words do not say well."""


class Section(BaseModel):
    """One table of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_Model = TypeVar("_Model", bound=Section)


def read_toml(path: Path) -> dict[str, Any]:
    """What stands in the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: not valid TOML: {error}") from error


def as_model(model: type[_Model], settings: Mapping[str, Any], path: Path, *, reference: str) -> _Model:
    """The settings as a model; `path` is their file, and `reference` where all keys are listed."""
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        mistake = first_mistake(error)
        reason = _REASONS.get(mistake.kind, mistake.reason)
        if mistake.kind == "extra_forbidden":
            reason = f"no such key; {reference} lists them all"
        raise ProfileError(f"{path}: {': '.join(filter(None, (mistake.key, reason)))}", mistake.key, reason) from error
