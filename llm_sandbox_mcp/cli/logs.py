"""Logging to stderr."""

import logging

from ..escaping import EscapingFormatter
from ..floods import WithoutFloods


def log_to_stderr() -> None:
    """Sends warnings and errors to stderr, without floods, unless logging is configured already."""
    handler = logging.StreamHandler()
    handler.addFilter(WithoutFloods())
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
