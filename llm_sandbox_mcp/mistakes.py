"""What is wrong with a file or a request, where it does not fit its model."""

from dataclasses import dataclass

from pydantic import ValidationError


@dataclass(frozen=True, slots=True)
class Mistake:
    """One value that does not fit."""

    kind: str
    """Pydantic's name for it, such as missing or extra_forbidden."""
    key: str
    """Where it is, such as limits.memory; empty for the whole."""
    reason: str
    """What it must be, without where it is."""


def first_mistake(error: ValidationError) -> Mistake:
    """The first that was found: people correct one after the other."""
    detail = error.errors(include_url=False)[0]
    reason = detail["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
    return Mistake(detail["type"], ".".join(map(str, detail["loc"])), reason)
