"""Compares the names in a file with the rules. Runs in the worker."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from .hints import NameHint, anywhere, spelled
from .naming import Grammar, Names

_BLANKS = bytes(byte if byte == ord("\n") else ord(" ") for byte in range(256))

_Hit = tuple[int, int, str]
"""The number of a rule, where it finds something (offset in bytes), and what it finds."""


class TooSlow(Exception):
    """A pattern took longer than allowed; the text is the pattern."""


@dataclass(frozen=True, slots=True)
class Found:
    """One finding of a rule, with the first line where it occurs."""

    rule: int
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class _Pattern:
    rule: int
    source: str
    compiled: regex.Pattern[str]
    hint: regex.Pattern[str] | None = None
    """Matches in the whole code wherever the pattern matches in a string; None if there is no such hint."""


class Judge:
    """The rules of one language, prepared for checking its code."""

    def __init__(
        self, rules: Sequence[Mapping[str, Any]], numbers: Iterable[int], grammar: Grammar, limit: float
    ) -> None:
        chosen = [(number, rules[number]) for number in numbers]
        self._grammar = grammar
        self._limit = limit
        self._modules = _by_name(grammar, ((number, rule["modules"]) for number, rule in chosen))
        self._calls = _by_name(grammar, ((number, rule["calls"]) for number, rule in chosen))
        self._strings = [
            _Pattern(n, text, regex.compile(text), anywhere(text)) for n, rule in chosen for text in rule["strings"]
        ]
        self._patterns = [_Pattern(n, text, regex.compile(text)) for n, rule in chosen for text in rule["patterns"]]
        self._lines = [_Pattern(n, text, regex.compile(text)) for n, rule in chosen for text in rule["lines"]]
        self._roots = {self._root(name) for name in (*self._modules, *self._calls)}
        self._hint = NameHint((*self._modules, *self._calls), grammar.signs)

    def judge(self, code: bytes) -> list[Found]:
        """What the rules find, sorted by line. Raises `TooSlow`."""
        text = spelled(code.decode(errors="replace"))
        named = self._hint.hits(text)
        strings = [pattern for pattern in self._strings if pattern.hint is None or self._may_be(pattern.hint, text)]
        shapes = bool(self._patterns or self._lines)
        if not (named or strings or shapes):
            return []
        names = self._grammar.names(code, named=named, texts=bool(strings), shapes=shapes, pieces=self._hint.pieces)
        first: dict[tuple[int, str], int] = {}
        for rule, start, what in self._all(names, strings, code):
            first[rule, what] = min(start, first.get((rule, what), start))
        found = [Found(rule, code.count(b"\n", 0, start) + 1, what) for (rule, what), start in first.items()]
        return sorted(found, key=lambda hit: (hit.line, hit.rule, hit.what))

    def _all(self, names: Names, strings: Iterable[_Pattern], code: bytes) -> Iterator[_Hit]:
        modules = self._of_interest(names.modules)
        for name, start in modules.items():
            yield from self._matches(self._modules, name, start, "imports")
            yield from self._matches(self._calls, name, start, "imports")
        # A name below a module that the file imports counts as a use of the module, wherever it occurs.
        imported = {self._root(module) for module in modules}
        for name, start in self._of_interest(names.calls).items():
            yield from self._matches(self._calls, name, start, "uses")
            if self._root(name) in imported:
                yield from self._matches(self._modules, name, start, "imports")
        for pattern in strings:
            for text, start in names.strings.items():
                if self._search(pattern, text) is not None:
                    yield pattern.rule, start, f"has a string that matches {pattern.source}"
                    break
        for patterns, left_out in (
            (self._patterns, [*names.comments, *names.literals]),
            (self._lines, names.comments),
        ):
            shown = _without(code, left_out) if patterns else ""
            for pattern in patterns:
                if (match := self._search(pattern, shown)) is not None:
                    yield pattern.rule, len(shown[: match.start()].encode()), f"matches {pattern.source}"

    def _of_interest(self, names: Mapping[str, int]) -> dict[str, int]:
        return {name: start for name, start in names.items() if self._root(name) in self._roots}

    def _matches(self, rules: Mapping[str, Sequence[int]], name: str, start: int, verb: str) -> Iterator[_Hit]:
        """The rules for a name and for the names above it; only whole names count, so `os` does not match `oslo`."""
        for end in self._grammar.boundary.finditer(name):
            above = name[: end.start()]
            for number in rules.get(above, ()):
                yield number, start, f"{verb} {above}"

    def _may_be(self, hint: regex.Pattern[str], text: str) -> bool:
        try:
            return hint.search(text, timeout=self._limit) is not None
        except TimeoutError:
            return True

    def _root(self, name: str) -> str:
        return self._grammar.boundary.split(name, maxsplit=1)[0]

    def _search(self, pattern: _Pattern, text: str) -> regex.Match[str] | None:
        try:
            return pattern.compiled.search(text, timeout=self._limit)
        except TimeoutError:
            raise TooSlow(pattern.source) from None


def _by_name(grammar: Grammar, named: Iterable[tuple[int, Sequence[str]]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, names in named:
        for name in names:
            found.setdefault(grammar.plain(name), []).append(number)
    return found


def _without(code: bytes, left_out: Iterable[tuple[int, int]]) -> str:
    """The code with some parts replaced by blanks; the lines stay the same."""
    parts, done = [], 0
    for start, end in sorted(left_out):
        if start >= done:
            parts += [code[done:start], code[start:end].translate(_BLANKS)]
            done = end
    return b"".join([*parts, code[done:]]).decode(errors="replace")
