"""Logging to stderr."""

import logging
import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Escaping(logging.Formatter):
    """Escapes control characters: what is logged may come from code, and a terminal obeys them."""

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", super().format(record))


def log_to_stderr() -> None:
    """Sends warnings and errors to stderr, unless the embedding program has set logging up already."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Escaping("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
