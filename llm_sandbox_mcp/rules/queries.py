"""Splits the query of a language into parts; each runs only where it can find something. Runs in the worker."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tree_sitter import Language, Node, Query, QueryCursor

Match = tuple[Mapping[str, str | None], dict[str, list[Node]]]
"""The settings of a pattern, and what it captures."""
_KEPT: list[Query] = []
"""Keeps queries alive: py-tree-sitter 0.26 counts one reference too few, so freeing one frees strings in use."""


class Part:
    """Some patterns of a query."""

    def __init__(self, query: Query, words: Iterable[bytes] = ()) -> None:
        self._query = query
        self._settings = [self._query.pattern_settings(index) for index in range(self._query.pattern_count)]
        self._words = [(word, re.compile(rb"(?<![A-Za-z_])" + re.escape(word) + rb"(?!\w)")) for word in words]

    def matches(self, root: Node, code: bytes) -> list[Match]:
        """The matches of the patterns, each with the settings of its pattern."""
        # A search for the words in the bytes takes a tenth of the time.
        if self._words and not any(word in code and whole.search(code) for word, whole in self._words):
            return []
        if not self._settings:
            return []
        return [(self._settings[index], captures) for index, captures in QueryCursor(self._query).matches(root)]

    def captures(self, root: Node) -> dict[str, list[Node]]:
        """The nodes captured under each name, by any of the patterns; cheaper than `matches`."""
        return QueryCursor(self._query).captures(root) if self._settings else {}


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a query."""

    named: Part
    """Patterns for names."""
    special: Part
    """Patterns for names in code that has certain words."""
    shapes: Part
    """Patterns for comments and strings."""
    words: Part
    """Patterns for words that are texts without quotes."""


def parts_of(language: Language, query: str) -> Parts:
    """The parts of the query of a language."""
    whole, source = _compiled(language, query), query.encode()
    others: list[int] = []
    special = shapes = unquoted = b""
    words: set[bytes] = set()
    for index in range(whole.pattern_count):
        pattern = source[whole.start_byte_for_pattern(index) : whole.end_byte_for_pattern(index)]
        if re.search(rb"@(string|comment)\b", pattern):
            shapes += pattern
        elif re.search(rb"@word\b", pattern):
            unquoted += pattern
        elif conditions := b"".join(re.findall(rb"\(#(?:any-of|eq)\?([^)]*)\)", pattern)):
            special += pattern
            words.update(re.findall(rb'"([^"]+)"', conditions))
        else:
            continue
        others.append(index)
    # What remains is most of the query: compiling these patterns a second time would take as long as all of this.
    for index in others:
        whole.disable_pattern(index)
    return Parts(
        Part(whole),
        Part(_compiled(language, special.decode()), words),
        Part(_compiled(language, shapes.decode())),
        Part(_compiled(language, unquoted.decode())),
    )


def _compiled(language: Language, source: str) -> Query:
    query = Query(language, source)
    _KEPT.append(query)
    return query
