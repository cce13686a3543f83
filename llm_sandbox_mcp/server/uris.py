"""The addresses of this server's resources."""

import re
from urllib.parse import quote, unquote

LANGUAGES = "sandbox://languages"
LANGUAGE_TEMPLATE = "sandbox://languages/{language}"
PROFILE = "sandbox://profile"
POOL = "sandbox://pool"
ARTIFACT_TEMPLATE = "sandbox://sessions/{session_id}/artifacts/{+path}"

_LANGUAGE = re.compile(r"sandbox://languages/([^/]+)")
_PART = re.compile(r"(.+)\?offset=([0-9]{1,15})&length=([0-9]{1,15})", re.DOTALL)
_ARTIFACT = re.compile(r"sandbox://sessions/([^/]+)/artifacts/(.+)", re.DOTALL)


def artifact_uri(session_id: str, name: str) -> str:
    """The address at which an artifact is read."""
    return f"sandbox://sessions/{quote(session_id, safe='')}/artifacts/{quote(name)}"


def parse_artifact_uri(uri: str) -> tuple[str, str] | None:
    """Session id and name; None if the address is not that of an artifact."""
    match = _ARTIFACT.fullmatch(uri)
    return (unquote(match[1]), unquote(match[2])) if match else None


def part_uri(uri: str, offset: int, length: int) -> str:
    """The address at which so many bytes of an artifact are read."""
    return f"{uri}?offset={offset}&length={length}"


def parse_part_uri(uri: str) -> tuple[str, int, int] | None:
    """The address of an artifact, and which bytes of it; None if the address does not name bytes."""
    match = _PART.fullmatch(uri)
    return (match[1], int(match[2]), int(match[3])) if match else None


def parse_language_uri(uri: str) -> str | None:
    """The language's name; None if the address is not that of a language."""
    match = _LANGUAGE.fullmatch(uri)
    return unquote(match[1]) if match else None
