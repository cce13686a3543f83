"""Hands the pages to MkDocs; `generator` makes them and knows nothing of MkDocs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generator import make_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that the navigation names and `docs_dir` does not have, and the files that they link to."""
    missing = [uri for uri in _named(config.nav) if uri not in files.src_uris]
    for uri, content in make_pages(missing).items():
        if isinstance(content, Path):
            files.append(File.generated(config, uri, abs_src_path=str(content)))
        else:
            files.append(File.generated(config, uri, content=content))
    return files


def _named(nav: Any) -> Iterator[str]:
    """The pages that a navigation names, in any depth."""
    match nav:
        case str():
            yield nav
        case dict():
            for below in nav.values():
                yield from _named(below)
        case list():
            for below in nav:
                yield from _named(below)
