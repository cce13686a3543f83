"""Tables of the documents that promise something, as data."""

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SHOWN_BY = "shown by"


def _promised(page: str, first: str) -> Mapping[str, Mapping[str, str]]:
    """The table of a page whose head begins so: for each row, its cells by column."""
    text = (ROOT / "docs/pages" / page).read_text(encoding="utf-8")
    lines = iter(text[text.index(first) :].splitlines())
    head = [cell.strip() for cell in next(lines).strip("|").split("|")]
    next(lines)
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name] = dict(zip(head[1:], cells, strict=True))
    return rows


TABLE = _promised("limits-and-isolation.md", "| layer | embedded |")
"""For each layer: what each backend does for it, and which tests show that."""

SURVIVAL = _promised("kept-sessions.md", "| what happens |")
"""For each thing that happens to a session: what becomes of it, by how the profile keeps sessions."""


def listed(layer: str, backend: str = "embedded") -> set[str]:
    """The items of a cell up to the first semicolon or colon; "the same" means the items for bubblewrap."""
    cell = TABLE[layer][backend]
    if cell.startswith("the same"):
        return listed(layer)
    return set(re.split(r"[;:]", cell)[0].replace("`", "").split(", "))


def showing(layer: str) -> set[str]:
    """The test files that the table names for a layer."""
    return set(re.findall(r"`([a-z_/]+\.py)`", TABLE[layer][_SHOWN_BY]))
