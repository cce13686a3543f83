"""Paths of an index: only those that mean the same place however a server decodes them, and how often."""

import re
from urllib.parse import unquote

_SCOPED = re.compile(r"@[A-Za-z0-9_~-][A-Za-z0-9._~-]*%2[Ff][A-Za-z0-9_~-][A-Za-z0-9._~-]*")
"""npm requests scoped packages with an encoded slash in one segment; no other encoded slash is allowed."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\%]")


def is_plain(path: str) -> bool:
    """Whether no segment of an encoded path leads elsewhere, or could be read so by some server."""
    return all(map(_is_plain, path.split("/")))


def _is_plain(segment: str) -> bool:
    decoded = unquote(segment, "latin-1")
    # Some servers cut off everything after a semicolon before they check for dots.
    if decoded.partition(";")[0] in (".", "..") or "%2e" in segment.lower() or _ODD.search(decoded):
        return False
    return "/" not in decoded or _SCOPED.fullmatch(segment) is not None
