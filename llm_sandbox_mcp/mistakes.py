"""The mistake in a file or a request that does not fit its model."""

import re
from dataclasses import dataclass

from pydantic import ValidationError

_SUBJECT = re.compile(r"^\w+ should\b")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One value that does not fit."""

    kind: str
    """Pydantic's name for it, such as missing or extra_forbidden."""
    location: tuple[int | str, ...]
    """The names and positions that lead to the value; empty for the whole file or request."""
    reason: str
    """What the value must be, without the key."""
    value: object
    """The value itself; the table around it if it is missing."""

    @property
    def key(self) -> str:
        """Where the value is, such as limits.memory; empty for the whole file or request."""
        return ".".join(map(str, self.location))


def first_mistake(error: ValidationError) -> Mistake:
    """The first mistake that was found: people fix them one by one."""
    detail = error.errors(include_url=False)[0]
    reason = _SUBJECT.sub("must", detail["msg"].removeprefix("Value error, "))
    return Mistake(detail["type"], detail["loc"], reason, detail["input"])
