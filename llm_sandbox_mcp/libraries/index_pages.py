"""Rewrites the responses of package indexes that name files on other hosts, by content type.

Responses of other types are passed on unchanged; this is enough for indexes with all files below their own address.
"""

import json
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from itertools import accumulate
from typing import Any

Locate = Callable[[str], str]
"""Turns a link in a page into the link that the package manager gets."""

Rewrite = Callable[[bytes, Locate], bytes]


def _simple_json(body: bytes, locate: Locate) -> bytes:
    page = json.loads(body)
    for file in _entries(page, "files"):
        _relocate(file, "url", locate)
    return _dump(page)


def _package_json(body: bytes, locate: Locate) -> bytes:
    page = json.loads(body)
    if not isinstance(page, dict):
        return body
    versions = page.get("versions")
    releases = [page, *(versions.values() if isinstance(versions, dict) else ())]
    named = [_relocate(release.get("dist"), "tarball", locate) for release in releases if isinstance(release, dict)]
    return _dump(page) if any(named) else body


def _simple_html(body: bytes, locate: Locate) -> bytes:
    links = _Links(locate)
    return links.rewritten(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


PAGES: dict[str, Rewrite] = {
    "application/vnd.pypi.simple.v1+json": _simple_json,
    "application/vnd.pypi.simple.v1+html": _simple_html,
    "text/html": _simple_html,
    "application/vnd.npm.install-v1+json": _package_json,
    "application/json": _package_json,
}
"""By content type. A page that does not match its type raises `ValueError`."""


def _entries(page: Any, key: str) -> list[Any]:
    entries = page.get(key) if isinstance(page, dict) else None
    return entries if isinstance(entries, list) else []


def _relocate(entry: Any, key: str, locate: Locate) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
        return False
    entry[key] = locate(entry[key])
    return True


def _dump(page: Any) -> bytes:
    return json.dumps(page, separators=(",", ":")).encode()


class _Links(HTMLParser):
    """Copies a page and changes only the `href` of its anchors."""

    def __init__(self, locate: Locate) -> None:
        super().__init__(convert_charrefs=False)
        self._locate = locate
        self._changes: list[tuple[int, int, str]] = []
        self._lines = [0]

    def rewritten(self, page: str) -> str:
        self._lines = [0, *accumulate(len(line) + 1 for line in page.split("\n"))]
        self.feed(page)
        self.close()
        parts, done = [], 0
        for start, end, tag in self._changes:
            parts += [page[done:start], tag]
            done = end
        return "".join([*parts, page[done:]])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "a":
            return
        line, column = self.getpos()
        start = self._lines[line - 1] + column
        words = ["<a"]
        for name, value in attrs:
            if name == "href" and value is not None:
                value = self._locate(value)
            words.append(name if value is None else f'{name}="{escape(value)}"')
        self._changes.append((start, start + len(self.get_starttag_text() or ""), " ".join(words) + ">"))
