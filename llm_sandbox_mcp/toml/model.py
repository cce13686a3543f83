"""TOML files as frozen models: a mistake in a file is a `ProfileError` with file, key and reason."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Strict, ValidationError

from ..base.errors import ProfileError
from .corrections import TomlFile, first_mistake

T = TypeVar("T")

Many = Annotated[tuple[T, ...], Strict(False)]
"""A list in TOML, as an immutable tuple; its items are checked as strictly as other values."""


def _absolute(value: str) -> str:
    path = os.path.expanduser(value)
    if not os.path.isabs(path):
        raise ValueError(f"must be absolute; {path!r} is not")
    return path


def absolute_if_any(value: str) -> str:
    """An absolute path with its home folder, or none."""
    return _absolute(value) if value else ""


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
"""An absolute path, or one that begins with a home directory such as `~`."""
OptionalPath = Annotated[str, AfterValidator(absolute_if_any)]
"""An absolute path, or one that begins with a home directory; an empty string means no path."""


_NOT_UTF8 = "not valid TOML: it is not UTF-8", "save it as UTF-8"
_NO_EXAMPLE: Mapping[str, Any] = {}


class Section(BaseModel):
    """One table of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_Model = TypeVar("_Model", bound=Section)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; a byte order mark, which some editors write, is ignored."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if "\0" in text:
            raise ProfileError(*_NOT_UTF8, file=path)
        return tomllib.loads(text)
    except OSError as error:
        raise ProfileError(f"cannot be read: {error.strerror}", file=path) from error
    except UnicodeDecodeError as error:
        raise ProfileError(*_NOT_UTF8, file=path) from error
    except ValueError as error:  # also for a number with thousands of digits, which is not a TOMLDecodeError
        raise ProfileError(f"not valid TOML: {error}", file=path) from error


def as_model(
    model: type[_Model],
    settings: Mapping[str, Any],
    path: Path,
    *,
    reference: str,
    example: Mapping[str, Any] = _NO_EXAMPLE,
) -> _Model:
    """The settings as a model; `path` is their file, and `reference` names the place that lists all keys.

    `example` contains the settings of a file with every key, if there is one: errors name keys of it that were meant.
    """
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        mistake = first_mistake(error)
        reason = TomlFile(model, reference, example).correction(mistake)
        raise ProfileError(reason, file=path, key=mistake.key) from error
