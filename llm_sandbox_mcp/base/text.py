"""Text that code, packages or callers chose: valid Unicode, harmless for consoles and our own lines, and cut between
characters."""

import json
import re
from collections.abc import Callable
from typing import TypeVar

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""U+FFFD, which stands for whatever is not valid Unicode."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_HIGH, _LOW = "[89abAB][0-9a-fA-F]{2}", "[c-fC-F][0-9a-fA-F]{2}"
_LONE_ESCAPES = re.compile(rf"\\u[dD](?:{_HIGH}(?!\\u[dD]{_LOW})|(?<!\\u[dD]{_HIGH}\\u[dD]){_LOW})")
"""Escapes of one half of a surrogate pair without the other, in JSON without escaped backslashes."""

_Value = TypeVar("_Value")

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Everything that moves a cursor, changes a terminal, reverses text, ends a line, hides, or cannot be encoded.

Tab and newline are harmless.
"""

_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]+@")


def valid(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which nothing can encode: one in a message would end the connection."""
    return text if text.isascii() else _SURROGATES.sub(REPLACEMENT, text)


def valid_json(value: _Value) -> _Value:
    """The value of JSON with `valid` text, also in the names of its objects.

    Raises `RecursionError` if it is nested too deeply.
    """
    text = json.dumps(value, ensure_ascii=False)
    found: _Value = value if (mended := valid(text)) == text else json.loads(mended)
    return found


def mended_json(data: bytes) -> bytes:
    """JSON in UTF-8 with U+FFFD for bytes that are not UTF-8, and for escapes of lone surrogates.

    Programs in JavaScript send such an escape if they cut a text in the middle of a character.
    """
    # JSON in UTF-8 contains no NUL, so that it can stand for escaped backslashes; every other one begins an escape.
    if b"\0" in data or _is_valid(data):
        return data
    text = data.decode(errors="replace").replace(r"\\", "\0")
    return _LONE_ESCAPES.sub(r"\\ufffd", text).replace("\0", r"\\").encode()


def parsed_json(data: bytes, parse: Callable[[bytes], _Value]) -> _Value:
    """What the parser makes of JSON, or else of the mended JSON; raises its `ValueError` if it can read neither."""
    try:
        return parse(data)
    except ValueError:
        if (mended := mended_json(data)) == data:
            raise
        return parse(mended)


def _is_valid(data: bytes) -> bool:
    """Whether there is nothing to mend, as is usual; found in a tenth of the time."""
    if rb"\ud" in data or rb"\uD" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def escape(text: str) -> str:
    """The text with its control characters shown as escapes, so that a terminal does not obey them."""
    return text if text.isascii() and text.isprintable() else _CONTROLS.sub(_shown, text)


def one_line(text: str) -> str:
    """The text with its control characters escaped, on one line, so that it cannot imitate one of our own lines."""
    return escape(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode()


def without_credentials(text: str) -> str:
    """The text with the credentials in addresses masked."""
    return _CREDENTIALS.sub("***@", text)


LONGEST_CHARACTER = 4
"""Bytes."""


def whole_end(data: bytes) -> bytes:
    """The data without a character that the cut at its end split."""
    for back in range(1, min(LONGEST_CHARACTER, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data if back >= needed else data[:-back]
    return data


def whole_start(data: bytes) -> bytes:
    """The data without the rest of a character that the cut at its start split."""
    start = 0
    while start < min(LONGEST_CHARACTER - 1, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def is_text(name: str) -> bool:
    """Whether a name that the system decoded is UTF-8: other bytes are lone surrogates."""
    return valid(name) == name
