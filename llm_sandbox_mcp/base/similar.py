"""Names that were probably meant: light, since programs that only enter a sandbox import it, too."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MOST = 3


def similar(name: str, known: Iterable[str]) -> list[str]:
    """The known names that differ only a little from this one, the most similar first; case does not matter."""
    by_lower = {one.lower(): one for one in known}
    return [by_lower[lower] for lower in get_close_matches(name.lower(), by_lower, _MOST)]


def did_you_mean(names: Sequence[str]) -> str:
    """The names as a question; empty without names."""
    *others, last = names or [""]
    return f"did you mean {' or '.join(filter(None, (', '.join(others), last)))}?" if last else ""


def available(name: str, known: Iterable[str]) -> str:
    """The next step for an unknown name: the known ones, and those that were probably meant."""
    names = [*known]
    question = did_you_mean([repr(one) for one in similar(name, names)])
    return f"available: {', '.join(names)}" + (f"; {question}" if question else "")
