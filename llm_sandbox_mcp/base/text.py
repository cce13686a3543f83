"""Text that code, packages or callers chose: harmless for consoles and our own lines, and cut between characters."""

import logging
import re

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Everything that moves a cursor, changes a terminal, reverses text, ends a line, hides, or cannot be encoded.

Tab and newline are harmless.
"""

_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]+@")


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


class EscapingFormatter(logging.Formatter):
    """Escapes control characters: logged text may come from code, and a terminal would obey them.

    A record is one line, and the lines of its traceback are indented, so no text in it can imitate another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging defines the name
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record)).replace("\n", "\n  ")


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
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
