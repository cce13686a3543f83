"""The documents of the project as pages, and their links, which lead to pages."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

_ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")
"""A link within the project: its path and its anchor."""
_INSTEAD = {"configs/default.toml": "reference/profile.md"}
"""Pages that say what a file of the project says."""
_AT_THE_TOP = ("docs/pages/", "docs/")
"""Folders whose files are at the top of the site; those of other folders are where they are in the project."""


def make_documents(wanted: Sequence[str]) -> Mapping[str, str | Path]:
    """The wanted pages as Markdown by their paths; also the other files of the project that they link to, by theirs."""
    sources = {page: _source(page) for page in wanted}
    linked: dict[str, Path] = {}

    def lead(page: str, link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        file = normpath(join(dirname(sources[page]), target)) if target else sources[page]
        place = _INSTEAD.get(file) or _place(file)
        if place not in sources and file not in _INSTEAD and (_ROOT / file).is_file():
            linked[place] = _ROOT / file
        return f"]({relpath(place, dirname(page) or '.')}{anchor})"

    texts = {page: (_ROOT / source).read_text(encoding="utf-8") for page, source in sources.items()}
    return {**{page: _LINK.sub(partial(lead, page), text) for page, text in texts.items()}, **linked}


def _source(page: str) -> str:
    """The file of the project that a page is made of."""
    return next(path for folder in (*_AT_THE_TOP, "") if (_ROOT / (path := f"{folder}{page}")).is_file())


def _place(file: str) -> str:
    """Where a file of the project is on the site."""
    for folder in _AT_THE_TOP:
        if file.startswith(folder):
            return file.removeprefix(folder)
    return file
