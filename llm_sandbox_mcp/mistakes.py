"""The mistake in a file or a request that does not fit its model."""

from dataclasses import dataclass

from pydantic import ValidationError


@dataclass(frozen=True, slots=True)
class Mistake:
    """One value that does not fit."""

    kind: str
    """Pydantic's name for it, such as missing or extra_forbidden."""
    key: str
    """Where the value is, such as limits.memory; empty for the whole file or request."""
    reason: str
    """What the value must be, without the key."""


def first_mistake(error: ValidationError) -> Mistake:
    """The first mistake that was found: people fix them one by one."""
    detail = error.errors(include_url=False)[0]
    reason = detail["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
    return Mistake(detail["type"], ".".join(map(str, detail["loc"])), reason)
