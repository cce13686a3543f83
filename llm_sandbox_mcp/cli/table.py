"""Tables for people."""

from collections.abc import Sequence

from ..escaping import one_line


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a header line; each column is as wide as its widest cell."""
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
