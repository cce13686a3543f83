"""JSON, also with comments and with commas after the last member, as in the settings of editors."""

import json
import re
from collections.abc import Mapping
from typing import Any

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_SPACE = re.compile(r"\s*")
_INDENT = re.compile(r'\n([ \t]+)"')
_REST = re.compile(r"[ \t]*(,?)(?:[ \t]*(?://[^\r\n]*|/\*.*?\*/))?", re.DOTALL)
"""What follows the last member on its line: a comma, a comment."""

_decoder = json.JSONDecoder()


def read(text: str) -> Any:
    """The content."""
    plain = _plain(text)
    return json.loads(plain) if plain.strip() else None


def put(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text with the entry."""
    return _Text(text).put(table, name, entry)


def _plain(text: str) -> str:
    """The text as strict JSON: spaces in place of comments and last commas, so that all else stays where it is."""
    without = _COMMENTS.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text)
    return _LAST_COMMAS.sub(lambda found: " " if found[0] == "," else found[0], without)


class _Text:
    def __init__(self, text: str) -> None:
        self._text = text
        self._plain = _plain(text)
        self._newline = "\r\n" if "\r\n" in text else "\n"
        indent = _INDENT.search(self._plain)
        self._indent = indent[1] if indent else "  "

    def put(self, table: str, name: str, entry: Mapping[str, Any]) -> str:
        if not self._plain.strip():
            return f"{self._text}{self._dumped({table: {name: entry}}, 0)}{self._newline}"
        servers, end = self._members(self._skipped(0))
        if table not in servers:
            return self._inserted(self._skipped(0), servers, end, 1, table, {name: entry})
        start, _ = servers[table]
        entries, end = self._members(start)
        if name not in entries:
            return self._inserted(start, entries, end, 2, name, entry)
        start, end = entries[name]
        return f"{self._text[:start]}{self._dumped(entry, 2)}{self._text[end:]}"

    def _skipped(self, at: int) -> int:
        """The position after white space."""
        found = _SPACE.match(self._plain, at)
        assert found is not None
        return found.end()

    def _members(self, start: int) -> tuple[dict[str, tuple[int, int]], int]:
        """Where the values of an object begin and end, and the position of its closing brace."""
        found = {}
        at = self._skipped(start + 1)
        while self._plain[at] != "}":
            key, at = _decoder.raw_decode(self._plain, at)
            begin = self._skipped(self._skipped(at) + 1)
            _, end = _decoder.raw_decode(self._plain, begin)
            found[key] = begin, end
            at = self._skipped(end)
            if self._plain[at] == ",":
                at = self._skipped(at + 1)
        return found, at

    def _inserted(
        self, start: int, members: Mapping[str, tuple[int, int]], end: int, depth: int, key: str, value: Any
    ) -> str:
        """The text with another last member, on lines of its own below the line of the one before."""
        last = max((stop for _, stop in members.values()), default=start + 1)
        rest = _REST.match(self._text, last)
        assert rest is not None
        comma = "," if members and not rest[1] else ""
        member = f"{self._newline}{self._indent * depth}{json.dumps(key)}: {self._dumped(value, depth)}"
        closing = "" if "\n" in self._plain[rest.end() : end] else self._newline + self._indent * (depth - 1)
        return self._text[:last] + comma + rest[0] + member + closing + self._text[rest.end() :]

    def _dumped(self, value: Any, depth: int) -> str:
        lines = json.dumps(value, indent=self._indent, ensure_ascii=False).split("\n")
        return f"{self._newline}{self._indent * depth}".join(lines)
