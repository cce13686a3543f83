"""What code has at the least where a rule finds something, so that most code need not be looked at. Runs in the worker.

A hint may hit where there is nothing to find, and never the other way round. It is held against the code as `spelled`.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import regex

from .escapes import decoded

_WORD = re.compile(rb"\w+")
_SPACED = bytes(byte if _WORD.match(bytes([byte])) else ord(" ") for byte in range(256))
_WITHIN_NAMES = b"\"'`\\"
"""What some languages let stand in the middle of a name; also a backslash with the end of its line."""
_BROKEN = re.compile(rb"(?<!\w)\w++(?:[\"'`\\]+\w+)+")
"""Words in which they stand. Any of them can as well be where a name begins or ends."""
_NUMBERED = re.compile(rb"\b\d")
"""Words in which a name may follow a number, and so begin anywhere."""
_CONTINUED = re.compile(rb"\\\r?\n")
_ESCAPED = re.compile(r"\\[xu0-7]")
"""Where a name can begin in the middle of what looks like a word."""
_LINES = re.compile(r"\\[ntr](\w+)")
"""Where a name in a string of code begins after the end of a line."""
_PIECE = re.compile(rb"\w+|[\"'`\\]|[^\x00-\x7f]")
_ODD = frozenset(bytes([byte]) for byte in (*_WITHIN_NAMES, *range(0x80, 0x100)))
"""Pieces of names that are not as they seem."""
_PART = re.compile(
    r"""(?P<place>\^ | \$ | \\[bBAZ])(?![*+?{])
      | (?P<kept>\\(?:[dDsSwWntr] | [^\w\s])
               | \[\^?\]?+(?:\\.|[^]\\[])*\]
               | \((?![?*]) | \(\?:
               | (?:[*+?] | \{\d+(?:,\d*)?\})(?!\+)
               | [^\\[({^$*+?])""",
    re.VERBOSE | re.DOTALL,
)
"""Parts of a regular expression: what says where something stands, and what finds the same anywhere."""


class NameHint:
    """What code has where one of these names, or one below it, stands."""

    def __init__(self, names: Iterable[str], signs: Mapping[str, str]) -> None:
        """`signs`: for names without a word what there is wherever they stand, as regular expressions."""
        names = dict.fromkeys(names)
        self._signs = [re.compile(signs[name]) for name in names if name in signs]
        self._names = [frozenset(_WORD.findall(name.encode())) for name in names if name not in signs]
        self._own = tuple(frozenset[bytes]().union(*self._names))
        self._telling = all(self._names)
        longest = {max(words, key=len) for words in self._names if words}
        self.pieces = longest | _ODD if self._telling else None
        """Each use of a name has one of them, or a name that the code gives to one; None where there is no telling."""

    def hits(self, text: str) -> bool:
        """Whether the text has all words of a name."""
        if not self._telling or _ESCAPED.search(text) or any(sign.search(text) for sign in self._signs):
            return True
        code = text.encode()
        joined = _CONTINUED.sub(b"", code)
        return self._stand_in(code) or (joined != code and self._stand_in(joined))

    def _stand_in(self, code: bytes) -> bool:
        words = set(code.translate(_SPACED).split())
        if any(map(words.issuperset, self._names)):
            return True
        words.update(self._broken(code))
        # Grammars let a name follow a number without a space.
        after = [word for word in words if word.endswith(self._own) and word[:1].isdigit()]
        words.update(own for own in self._own for word in after if word.endswith(own))
        return any(map(words.issuperset, self._names))

    def _broken(self, code: bytes) -> Iterator[bytes]:
        """The own words that stand in the code in parts."""
        broken = set(_BROKEN.findall(code))
        parts = b" ".join(broken)
        whole, numbered = (
            b" ".join(words).translate(None, _WITHIN_NAMES) for words in (broken, filter(_NUMBERED.search, broken))
        )
        return (own for own in self._own if own in whole and (own in numbered or _in_parts(own).search(parts)))


@cache
def _in_parts(word: bytes) -> re.Pattern[bytes]:
    """A word that may be broken anywhere."""
    letters = (re.escape(word[at : at + 1]) for at in range(len(word)))
    return re.compile(rb"(?<!\w)" + b"[\"'`\\\\]*".join(letters) + rb"(?!\w)")


def spelled(code: str) -> str:
    """The code in all ways in which a rule reads what stands in it, one after the other."""
    meant = decoded(code)
    ways = [code, meant, meant if meant.isascii() else unicodedata.normalize("NFKC", meant)]
    ways.append(" ".join(_LINES.findall(code)))
    return "\n".join(dict.fromkeys(ways))


def pieces_of(name: bytes) -> list[bytes]:
    """The words of a name, and what in it is not as it seems."""
    return _PIECE.findall(name)


def anywhere(pattern: str) -> regex.Pattern[str] | None:
    """A pattern that is found in a whole text wherever the given one is found in a part of it.

    It is the same without what it says of the ends of texts and words; None for patterns with more than that.
    """
    kept, end = [], 0
    while end < len(pattern):
        if (part := _PART.match(pattern, end)) is None:
            return None
        kept.append(part["kept"] or "")
        end = part.end()
    return regex.compile("".join(kept))
