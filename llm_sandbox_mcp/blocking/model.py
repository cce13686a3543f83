"""Values that a program can make of plain data, under the names that LLM Sandbox's models have for it."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Self

from .exceptions import ValidationError


class Model:
    """What dataclasses have beside their fields."""

    @classmethod
    def model_validate(cls, value: object) -> Self:
        """One of them as it is, or made of a table of its fields; `ValidationError` for anything else."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise ValidationError(f"{str(value)[:40]!r} is no {cls.__name__}; give one, or a table of its fields")
        try:
            return cls(**value)
        except TypeError as error:
            known = ", ".join(field.name for field in fields(cls))  # type: ignore[arg-type]
            raise ValidationError(f"{str(value)[:80]} is no {cls.__name__}, which has {known}") from error

    def model_dump(self) -> dict[str, Any]:
        """Its fields, and theirs, as tables and lists."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Another, with some fields changed."""
        return replace(self, **(update or {}))  # type: ignore[type-var]
