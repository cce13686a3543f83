"""Paths of an index: only those that name the same place to whoever decodes them, and however often."""

import re
from urllib.parse import unquote

_SCOPED = re.compile(r"@[A-Za-z0-9_~-][A-Za-z0-9._~-]*%2[Ff][A-Za-z0-9_~-][A-Za-z0-9._~-]*")
"""npm asks for scoped packages by one segment with an encoded slash; no other encoded slash is let through."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\%]")


def is_plain(path: str) -> bool:
    """Whether no segment of an encoded path is, or could be taken for, one that leads elsewhere."""
    return all(map(_is_plain, path.split("/")))


def _is_plain(segment: str) -> bool:
    decoded = unquote(segment, "latin-1")
    # Some servers cut off what follows a semicolon before they look at dots.
    if decoded.partition(";")[0] in (".", "..") or "%2e" in segment.lower() or _ODD.search(decoded):
        return False
    return "/" not in decoded or _SCOPED.fullmatch(segment) is not None
