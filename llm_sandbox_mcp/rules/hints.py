"""Hints: quick checks that show which code a rule cannot match, so that most code is not parsed. Runs in the worker.

A hint can hit where a rule finds nothing, but it never misses. It is applied to the code as `spelled`.
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
"""Characters that some languages allow in the middle of a name; a backslash can also join two lines."""
_BROKEN = re.compile(rb"(?<!\w)\w++(?:[\"'`\\]+\w+)+")
"""Words that contain such characters. A name can also begin or end at any of these characters."""
_NUMBERED = re.compile(rb"\b\d")
"""Finds words in which a name may follow a number, so that it can begin anywhere in the word."""
_CONTINUED = re.compile(rb"\\\r?\n")
_ESCAPED = re.compile(r"\\[xu0-7]")
"""Escapes after which a name can begin in the middle of what looks like a word."""
_LINES = re.compile(r"\\[ntr](\w+)")
"""Names that follow an escaped line end or tab, in a string that contains code."""
_PIECE = re.compile(rb"\w+|[\"'`\\]|[^\x00-\x7f]")
_ODD = frozenset(bytes([byte]) for byte in (*_WITHIN_NAMES, *range(0x80, 0x100)))
"""Pieces of names that can be written in several ways: quotes, backslashes, and bytes outside of ASCII."""
_PART = re.compile(
    r"""(?P<place>\^ | \$ | \\[bBAZ])(?![*+?{])
      | (?P<kept>\\(?:[dDsSwWntr] | [^\w\s])
               | \[\^?\]?+(?:\\.|[^]\\[])*\]
               | \((?![?*]) | \(\?:
               | (?:[*+?] | \{\d+(?:,\d*)?\})(?!\+)
               | [^\\[({^$*+?])""",
    re.VERBOSE | re.DOTALL,
)
"""Parts of a regular expression: `place` are anchors, and `kept` are parts that match the same text anywhere."""


class NameHint:
    """Checks whether code can use one of these names, or a name below one of them."""

    def __init__(self, names: Iterable[str], signs: Mapping[str, str]) -> None:
        """`signs`: for names without letters, regular expressions that match wherever such a name is used."""
        names = dict.fromkeys(names)
        self._signs = [re.compile(signs[name]) for name in names if name in signs]
        self._names = [frozenset(_WORD.findall(name.encode())) for name in names if name not in signs]
        self._words = tuple(frozenset[bytes]().union(*self._names))
        self._all_have_words = all(self._names)
        longest = {max(words, key=len) for words in self._names if words}
        self.pieces = longest | _ODD if self._all_have_words else None
        """Each use of a name contains one of these pieces, or an alias of a name; None if there is no such set."""

    def hits(self, text: str) -> bool:
        """Whether the text contains all words of a name, or could hide one."""
        if not self._all_have_words or _ESCAPED.search(text) or any(sign.search(text) for sign in self._signs):
            return True
        code = text.encode()
        joined = _CONTINUED.sub(b"", code)
        return self._found_in(code) or (joined != code and self._found_in(joined))

    def _found_in(self, code: bytes) -> bool:
        words = set(code.translate(_SPACED).split())
        if any(map(words.issuperset, self._names)):
            return True
        words.update(self._broken(code))
        # Grammars let a name follow a number without a space.
        after = [word for word in words if word.endswith(self._words) and word[:1].isdigit()]
        words.update(end for end in self._words for word in after if word.endswith(end))
        return any(map(words.issuperset, self._names))

    def _broken(self, code: bytes) -> Iterator[bytes]:
        """The words of names that other characters in the code split into parts."""
        broken = set(_BROKEN.findall(code))
        parts = b" ".join(broken)
        whole, numbered = (
            b" ".join(words).translate(None, _WITHIN_NAMES) for words in (broken, filter(_NUMBERED.search, broken))
        )
        return (word for word in self._words if word in whole and (word in numbered or _in_parts(word).search(parts)))


@cache
def _in_parts(word: bytes) -> re.Pattern[bytes]:
    """A pattern for a word that can be split anywhere by the characters of `_WITHIN_NAMES`."""
    letters = (re.escape(word[at : at + 1]) for at in range(len(word)))
    return re.compile(rb"(?<!\w)" + b"[\"'`\\\\]*".join(letters) + rb"(?!\w)")


def spelled(code: str) -> str:
    """The code in every form in which a rule reads it, one after the other: as written, decoded, normalized."""
    meant = decoded(code)
    ways = [code, meant, meant if meant.isascii() else unicodedata.normalize("NFKC", meant)]
    ways.append(" ".join(_LINES.findall(code)))
    return "\n".join(dict.fromkeys(ways))


def pieces_of(name: bytes) -> list[bytes]:
    """The words of a name, and its characters of `_ODD`."""
    return _PIECE.findall(name)


def anywhere(pattern: str) -> regex.Pattern[str] | None:
    """A pattern that matches in a whole text wherever the given pattern matches in a part of it.

    It is the given pattern without the anchors for the ends of texts and words; None for more complex patterns.
    """
    kept, end = [], 0
    while end < len(pattern):
        if (part := _PART.match(pattern, end)) is None:
            return None
        kept.append(part["kept"] or "")
        end = part.end()
    return regex.compile("".join(kept))
