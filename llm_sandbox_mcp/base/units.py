"""Sizes and times as people write them: `"512MiB"`, `"30s"`."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
TIMES = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DOCKER = re.compile(r"(\d{1,15}(?:\.\d+)?)([bkmgt]?)b?", re.IGNORECASE)
_DOCKER_UNITS = {"": "B", "b": "B", "k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")


_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_SIZE_WORDS = {"b": "B", "k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}
_TIME_WORDS = {"ms": "ms", "mil": "ms", "mon": "", "s": "s", "m": "m", "h": "h", "d": "d"}
"""How words for units begin, as people write them; an empty unit is none of ours."""
_LARGEST_SIZE = (1 << 63) - 1
"""The kernel's limits, and engines, have no room for more."""
_LONGEST_TIME = 36500 * 86400.0
"""Seconds of a hundred years."""


def _quantity(text: object, units: dict[str, float] | dict[str, int]) -> Decimal | None:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        return None
    # Not with floats: their rounding errors would be visible when the profile is shown.
    return Decimal(match[1]) * Decimal(str(units[match[2]]))


def parse_size(text: object) -> int:
    """Bytes of a size such as `"512MiB"`; `ValueError` for a bare number or an unknown unit."""
    amount = _quantity(text, SIZES)
    if amount is None:
        meant = _meant(text, _SIZE_WORDS, _unit_of_size) or "512MiB"
        raise ValueError(f'must be a string with a unit ({", ".join(SIZES)}), such as "{meant}"')
    if amount > _LARGEST_SIZE:
        raise ValueError(f'is too large; give at most "{_LARGEST_SIZE >> 40}TiB"')
    return int(amount)


def parse_duration(text: object) -> float:
    """Seconds of a time such as `"30s"`; `ValueError` for a bare number or an unknown unit."""
    amount = _quantity(text, TIMES)
    if amount is None:
        meant = _meant(text, _TIME_WORDS, lambda amount: "s") or "30s"
        raise ValueError(f'must be a string with a unit ({", ".join(TIMES)}), such as "{meant}"')
    if amount > _LONGEST_TIME:
        raise ValueError(f'is too long; give at most "{_LONGEST_TIME / TIMES["d"]:g}d"')
    return float(amount)


def _meant(given: object, words: dict[str, str], unit_of: Callable[[float], str]) -> str:
    """The quantity that was probably meant; empty if that cannot be told."""
    match = _AMOUNT.fullmatch("" if isinstance(given, bool) else str(given).strip())
    if match is None:
        return ""
    word = match[2].lower()
    unit = (
        next((unit for start, unit in words.items() if word.startswith(start)), "")
        if word
        else unit_of(float(match[1]))
    )
    return f"{match[1]}{unit}" if unit else ""


def _unit_of_size(amount: float) -> str:
    """The unit of a bare number: few people mean bytes by a small one."""
    return "GiB" if amount <= 64 else "MiB" if amount < SIZES["MiB"] else "B"


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


def format_age(seconds: float) -> str:
    """A time that is over, in whole units: `101` is `"1m"`, and less than a second `"0s"`."""
    unit, length = next(
        ((unit, length) for unit, length in reversed(TIMES.items()) if length >= 1 and seconds >= length), ("s", 1.0)
    )
    return f"{int(seconds / length)}{unit}"


def _above_zero(amount: float) -> float:
    if amount <= 0:
        raise ValueError("must be above zero")
    return amount


Size = Annotated[int, BeforeValidator(parse_size)]
PositiveSize = Annotated[Size, AfterValidator(_above_zero)]
PositiveDuration = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_above_zero)]
