"""Package indexes with one tiny library each, made by the test that serves them on loopback.

Each class is one kind of index: `pages` maps a path to the answer.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Protocol, Self

from tests.handlers.indexes_compiled import Debian, GoProxy, Maven
from tests.local_index import LocalIndex, Page, local_index, tar, wheel

LIMIT = 60.0
"""Seconds for a tool that builds a package."""


class Index(Protocol):
    """The answers of an index."""

    @property
    def pages(self) -> Mapping[str, Page | bytes]: ...


@dataclass
class Wheels:
    """Python's simple API."""

    pages: dict[str, Page] = field(default_factory=dict)

    @classmethod
    def small(cls) -> Self:
        """The module `tinyanswer`."""
        page = LocalIndex(0)
        page.url = ""
        page.add_project("tinyanswer", wheel("tinyanswer"), page)
        return cls({path.removeprefix("/simple"): content for path, content in page.pages.items()})


@dataclass
class Npm:
    """npm's registry."""

    pages: dict[str, Page] = field(default_factory=dict)

    @classmethod
    def small(cls) -> Self:
        """The module `tiny-answer`."""
        page = LocalIndex(0)
        page.url = ""
        page.add_npm("tiny-answer", page)
        return cls(page.pages)


@dataclass
class Gems:
    """A folder that `gem generate_index` makes."""

    pages: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def small(cls) -> Self:
        """The gem `tiny-answer`."""
        index = cls()
        with tempfile.TemporaryDirectory() as name:
            source, served = Path(name, "source"), Path(name, "served")
            (source / "lib").mkdir(parents=True)
            (served / "gems").mkdir(parents=True)
            (source / "lib/tiny_answer.rb").write_text("module TinyAnswer\n  ANSWER = 42\nend\n")
            (source / "bin").mkdir()
            program = "#!/usr/bin/env ruby\nrequire 'tiny_answer'\nputs TinyAnswer::ANSWER\n"
            (source / "bin/tiny-answer").write_text(program)
            (source / "tiny-answer.gemspec").write_text(
                "Gem::Specification.new('tiny-answer', '1.0.0') do |gem|\n"
                "  gem.summary = gem.license = gem.author = 'none'\n  gem.homepage = 'http://localhost'\n"
                "  gem.files = ['lib/tiny_answer.rb', 'bin/tiny-answer']\n  gem.executables = ['tiny-answer']\nend\n"
            )
            _tool(
                "gem", "build", "--norc", "tiny-answer.gemspec", "-o", f"{served}/gems/tiny-answer-1.0.0.gem", at=source
            )
            _tool("gem", "generate_index", "--norc", "--directory", str(served), at=source)
            for path in served.rglob("*"):
                if path.is_file():
                    index.pages[f"/{path.relative_to(served)}"] = path.read_bytes()
        return index


@dataclass
class Cran:
    """The sources of a CRAN mirror."""

    pages: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, code: str, more: str = "") -> None:
        """Adds a package that exports all its code; `more` contains further lines of its description."""
        description = f"Package: {name}\nVersion: 1.0\n{more}"
        whole = f"{description}Title: None\nDescription: None.\nAuthor: None\nMaintainer: None <none@localhost>\nLicense: MIT\n"
        files = {"DESCRIPTION": whole, "NAMESPACE": 'exportPattern("^[a-z]")\n', "R/code.R": code}
        place = "/src/contrib"
        self.pages[f"{place}/{name}_1.0.tar.gz"] = tar({f"{name}/{path}": text for path, text in files.items()})
        self.pages[f"{place}/PACKAGES"] = self.pages.get(f"{place}/PACKAGES", b"") + f"{description}\n".encode()

    @classmethod
    def small(cls) -> Self:
        """The package `tinyanswer`, which needs another package, and a package that cannot be installed."""
        index = cls()
        index.add("tinyquestion", "question <- function() 'six by nine'\n")
        index.add("tinyanswer", "answer <- function() c(tinyquestion::question(), '42')\n", "Imports: tinyquestion\n")
        index.add("tinybroken", "stop('broken')\n")
        return index


INDEXES: dict[str, Callable[[], Index]] = {
    "python": Wheels.small,
    "javascript": Npm.small,
    "ruby": Gems.small,
    "r": Cran.small,
    "java": Maven.small,
    "go": GoProxy.small,
    "cpp": Debian.small,
}
"""By language."""


def pages(language: str) -> dict[str, Page]:
    """The answers of a language's index, by path, as copies that a test can change."""
    return {path: replace(page) for path, page in _made(language).items()}


@cache
def _made(language: str) -> Mapping[str, Page]:
    # Once for all tests: compilers and packagers take seconds.
    content = INDEXES[language]().pages
    return {path: page if isinstance(page, Page) else Page(page) for path, page in content.items()}


@contextmanager
def serve_indexes(languages: Mapping[str, bool]) -> Iterator[dict[str, str]]:
    """Serves the index of every language whose tools are installed, and yields the addresses by language."""
    with ExitStack() as stack:
        addresses = {}
        for language in INDEXES:
            if not languages.get(language):
                continue
            server = stack.enter_context(local_index())
            server.pages.update(pages(language))
            addresses[language] = f"{server.url}/"
        yield addresses


def _tool(program: str, *arguments: str, at: Path) -> None:
    found = shutil.which(program)
    assert found is not None
    environment = {"PATH": os.environ["PATH"], "HOME": str(at), "LANG": "C.UTF-8"}
    subprocess.run([found, *arguments], cwd=at, env=environment, check=True, capture_output=True, timeout=LIMIT)
