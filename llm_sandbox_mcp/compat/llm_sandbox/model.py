"""Values that a program can make from plain data, with the method names of LLM Sandbox's models."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Self

from .exceptions import ValidationError


class Model:
    """Methods that dataclasses have in addition to their fields."""

    @classmethod
    def model_validate(cls, value: object) -> Self:
        """An instance unchanged, or a new one from a dict of its fields; `ValidationError` for anything else."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise ValidationError(f"{str(value)[:40]!r} is not a {cls.__name__}", "give one, or a dict of its fields")
        try:
            return cls(**value)
        except TypeError as error:
            known = ", ".join(field.name for field in fields(cls))  # type: ignore[arg-type]
            raise ValidationError(f"{str(value)[:80]} is not a {cls.__name__}; its fields are: {known}") from error

    def model_dump(self) -> dict[str, Any]:
        """Its fields, also nested ones, as dicts and lists."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with some fields changed."""
        return replace(self, **(update or {}))  # type: ignore[type-var]
