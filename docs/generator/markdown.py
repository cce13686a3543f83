"""Pieces of Markdown."""

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def code(text: str) -> str:
    """Text as inline code; nothing for no text."""
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """Text of one paragraph in which only backticks have a meaning."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<|\[\\])", r"\\\1", part) for part in parts)


def sentence(text: str) -> str:
    """The same as a sentence; nothing for no text."""
    return f"{plain(text[0].upper() + text[1:])}." if text else ""
