"""Text that code, packages or callers chose, made harmless for consoles, logs and lines of our own."""

import logging
import re

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
"""All that moves a cursor, changes a terminal, turns text round, ends a line, hides, or cannot be encoded.

Tab and newline are harmless.
"""


def escape(text: str) -> str:
    """Text whose control characters are shown, not obeyed."""
    return text if text.isascii() and text.isprintable() else _CONTROLS.sub(_shown, text)


def one_line(text: str) -> str:
    """The same, on one line: what it says must not look like a line of ours."""
    return escape(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode()


class EscapingFormatter(logging.Formatter):
    """Escapes control characters: what is logged may come from code, and a terminal obeys them.

    A record is one line, and those of its traceback are indented, so that no text in it can pass for another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record)).replace("\n", "\n  ")
