"""Sizes and times as people write them: `"512MiB"`, `"30s"`."""

import math
import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
TIMES = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DOCKER = re.compile(r"(\d{1,15}(?:\.\d+)?)([bkmgt]?)b?", re.IGNORECASE)
_DOCKER_UNITS = {"": "B", "b": "B", "k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")


def _quantity(text: object, units: dict[str, float] | dict[str, int], example: str) -> float:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        raise ValueError(f"must be a string with a unit ({', '.join(units)}), such as {example}")
    # Not with floats: their rounding errors would be visible when the profile is shown.
    amount = float(Decimal(match[1]) * Decimal(str(units[match[2]])))
    if not math.isfinite(amount):
        raise ValueError("is too large")
    return amount


def parse_size(text: object) -> int:
    """Bytes of a size such as `"512MiB"`; `ValueError` for a bare number or an unknown unit."""
    return int(_quantity(text, SIZES, '"512MiB"'))


def parse_duration(text: object) -> float:
    """Seconds of a time such as `"30s"`; `ValueError` for a bare number or an unknown unit."""
    return _quantity(text, TIMES, '"30s"')


def docker_size(text: str) -> str | None:
    """Converts a size in Docker's form, such as `512m`, `4gb` or a number of bytes, to ours; None for other text."""
    match = _DOCKER.fullmatch(text.strip())
    return f"{match[1]}{_DOCKER_UNITS[match[2].lower()]}" if match else None


def format_size(size: int) -> str:
    """The size in the largest unit that leaves at least one: `1536` is `"1.5KiB"`."""
    for unit, factor in reversed(SIZES.items()):
        if size >= factor:
            return f"{size / factor:.4g}{unit}"
    return f"{size}B"


def format_duration(seconds: float) -> str:
    """The time in the largest unit that leaves at least one: `600` is `"10m"`."""
    for unit, factor in reversed(TIMES.items()):
        if seconds >= factor:
            return f"{seconds / factor:.4g}{unit}"
    return f"{seconds * 1000:.4g}ms"


def _above_zero(amount: float) -> float:
    if amount <= 0:
        raise ValueError("must be above zero")
    return amount


Size = Annotated[int, BeforeValidator(parse_size)]
PositiveSize = Annotated[Size, AfterValidator(_above_zero)]
PositiveDuration = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_above_zero)]
