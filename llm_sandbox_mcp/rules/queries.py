"""The query of a language in parts, each of which is run only where it can find something. Runs in the worker."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tree_sitter import Language, Node, Query, QueryCursor

Match = tuple[Mapping[str, str | None], dict[str, list[Node]]]
"""The settings of a pattern, and what it captures."""
_KEPT: list[Query] = []
"""A query that is freed takes strings with it that others have: py-tree-sitter 0.26 counts one reference too few."""


class Part:
    """Some patterns of a query."""

    def __init__(self, language: Language, source: bytes, words: Iterable[bytes] = ()) -> None:
        self._query = Query(language, source.decode())
        self._settings = [self._query.pattern_settings(index) for index in range(self._query.pattern_count)]
        self._words = [(word, re.compile(rb"(?<![A-Za-z_])" + re.escape(word) + rb"(?!\w)")) for word in words]

    def matches(self, root: Node, code: bytes) -> list[Match]:
        """What they find, each with the settings of its pattern."""
        # That a word is there as bytes is known in a tenth of the time.
        if self._words and not any(word in code and whole.search(code) for word, whole in self._words):
            return []
        if not self._settings:
            return []
        return [(self._settings[index], captures) for index, captures in QueryCursor(self._query).matches(root)]

    def captures(self, root: Node) -> dict[str, list[Node]]:
        """What they capture by each name, whichever pattern it was; cheaper than matches."""
        return QueryCursor(self._query).captures(root) if self._settings else {}


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a query."""

    named: Part
    """For what is named."""
    special: Part
    """For what is named with certain words."""
    shapes: Part
    """For comments and strings."""
    words: Part
    """For what else says something, without quotes."""


def parts_of(language: Language, query: str) -> Parts:
    """The parts of the query of a language."""
    whole, source = Query(language, query), query.encode()
    _KEPT.append(whole)
    named = special = shapes = unquoted = b""
    words: set[bytes] = set()
    for index in range(whole.pattern_count):
        pattern = source[whole.start_byte_for_pattern(index) : whole.end_byte_for_pattern(index)]
        if re.search(rb"@(string|comment)\b", pattern):
            shapes += pattern
        elif re.search(rb"@word\b", pattern):
            unquoted += pattern
        elif asked := b"".join(re.findall(rb"\(#(?:any-of|eq)\?([^)]*)\)", pattern)):
            special += pattern
            words.update(re.findall(rb'"([^"]+)"', asked))
        else:
            named += pattern
    return Parts(
        Part(language, named), Part(language, special, words), Part(language, shapes), Part(language, unquoted)
    )
