"""Logging to stderr."""

import logging

from ..escaping import EscapingFormatter


def log_to_stderr() -> None:
    """Sends warnings and errors to stderr, unless the embedding program has already configured logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
