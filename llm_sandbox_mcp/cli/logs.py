"""Logging to stderr."""

import logging

from ..escaping import escape, one_line


class _Escaping(logging.Formatter):
    """Escapes control characters: what is logged may come from code, and a terminal obeys them.

    A record is one line, and those of its traceback are indented, so that no text in it can pass for another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record)).replace("\n", "\n  ")


def log_to_stderr() -> None:
    """Sends warnings and errors to stderr, unless the embedding program has set logging up already."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Escaping("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
