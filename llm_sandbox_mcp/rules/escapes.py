"""Decodes characters that code writes as escapes, in the forms that most languages share."""

import re

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,5})\}|([0-7]{3}))")

_SIMPLE = re.compile(r"""\\([ntr"'`$\\])""")
_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r"}


def decoded(text: str) -> str:
    """The text with its numeric escapes replaced by the characters that they mean."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    octal = escape[4]
    return chr(int(octal, 8) if octal else int(escape[1] or escape[2] or escape[3], 16))


def unescaped(text: str) -> str:
    """The text with its escapes for line ends, tabs, quotes, `$` and backslashes replaced by these characters."""
    return _SIMPLE.sub(lambda escape: _CHARACTERS.get(escape[1], escape[1]), text) if "\\" in text else text
