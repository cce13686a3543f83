"""The documents of the project as pages: `README.md` by its sections, the others as they are; links lead to pages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from .markdown import slug

_ROOT = Path(__file__).parents[2]
_FIRST = "README.md"
_LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")
"""A link within the project: its path and its anchor."""
_INSTEAD = {"configs/default.toml": "reference/profile.md"}
"""Pages that say what a file of the project says."""
_PAGES = "docs/pages/"
"""The folder of the pages that are written by hand; on the site they are at the top."""


def make_documents(wanted: Sequence[str]) -> Mapping[str, str | Path]:
    """The wanted pages as Markdown by their paths; also the other files of the project that they link to, by theirs."""
    texts = {path: (_ROOT / path).read_text(encoding="utf-8") for path in wanted if (_ROOT / path).is_file()}
    sections = _split(texts[_FIRST], wanted)
    texts |= sections
    moved = {anchor: path for path, text in sections.items() for anchor in _anchors(text)}
    linked: dict[str, Path] = {}

    def lead(path: str, link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        source = _FIRST if path in sections else path
        file = normpath(join(dirname(source), target)) if target else source
        page = moved.get(anchor, file) if file == _FIRST else _INSTEAD.get(file, file).removeprefix(_PAGES)
        if page not in texts and (_ROOT / page).is_file():
            linked[page] = _ROOT / page
        return f"]({relpath(page, dirname(path) or '.')}{anchor})"

    pages = {path: _LINK.sub(partial(lead, path), text) for path, text in texts.items()}
    return {**pages, **linked}


def _split(text: str, wanted: Iterable[str]) -> dict[str, str]:
    """The wanted pages of sections of `README.md`, and its first page with everything else."""
    pages = {_FIRST: ""}
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        heading = re.match(r"## (.+)", part)
        path = f"{slug(heading[1])}.md" if heading else _FIRST
        if heading and path in wanted:
            # Its heading becomes the title of the page.
            pages[path] = re.sub(r"^#(#+ )", r"\1", part, flags=re.MULTILINE)
        else:
            pages[_FIRST] += part
    return pages


def _anchors(text: str) -> list[str]:
    return [f"#{slug(heading)}" for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
