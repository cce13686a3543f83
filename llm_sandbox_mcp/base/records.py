"""Records of the log, harmless for consoles. Apart from `text.py`: what starts sandboxes needs that, and no log."""

import logging

from .text import escape, one_line


class EscapingFormatter(logging.Formatter):
    """Escapes control characters: logged text may come from code, and a terminal would obey them.

    A record is one line, and the lines of its traceback are indented, so no text in it can imitate another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging defines the name
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record)).replace("\n", "\n  ")
