"""What a reader finds in any document exists: commands, make targets, files, links; programs and profiles are valid.

`tests/test_readme.py` also runs what can be run, of those for users.
"""

import os
import re
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from llm_sandbox_mcp import __version__
from llm_sandbox_mcp.cli.parser import build, parse
from llm_sandbox_mcp.profile.profile import load_profile
from tests.cli.command import ROOT
from tests.documents import DOCUMENTS, OTHER_TABLES, anchors, blocks, lines, phrases, words

CALLS = [(name, line) for name in DOCUMENTS for line in lines(name) if words(line)]
PLACES = ("tests/", "docs/", "configs/", "handlers/", "llm_sandbox_mcp/", ".ci/")
each_document = pytest.mark.parametrize("document", DOCUMENTS)


def test_the_documents_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/pages/hosts.md", "tests/hostile/README.md"} <= DOCUMENTS.keys()
    assert len(CALLS) > 20


@pytest.mark.parametrize(("document", "line"), CALLS)
def test_a_command_can_be_parsed(document: str, line: str) -> None:
    if words(line)[1:] != ["--version"]:
        assert parse(words(line)[1:]).module


@each_document
def test_a_command_in_the_text_exists(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It need not be whole: what it needs may be left out."""
    for phrase in phrases(document):
        if phrase.startswith("llm-sandbox-mcp "):
            with suppress(SystemExit):
                build().parse_args(words(phrase)[1:])
            mistake = capsys.readouterr().err
            assert not mistake or "required" in mistake, phrase


@each_document
def test_a_target_of_make_exists(document: str) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [
        found[1] for text in (*lines(document), *phrases(document)) if (found := re.search(r"\bmake ([\w-]+)", text))
    ]
    assert [name for name in named if name not in targets] == []
    assert named or document not in ("README.md", "CONTRIBUTING.md", "tests/README.md")


@each_document
def test_a_file_in_the_text_exists(document: str) -> None:
    """Paths start at the project, or at `tests/` in its documents."""
    roots = (ROOT, ROOT / "tests") if document.startswith("tests/") else (ROOT,)
    named = {phrase.partition("::")[0] for phrase in phrases(document) if re.fullmatch(r"[\w.]+/[\w./:<>*-]*", phrase)}
    patterns = [re.sub(r"<\w+>", "*", name) for name in named if name.startswith(PLACES)]
    assert [pattern for pattern in patterns if not any(list(root.glob(pattern)) for root in roots)] == []


@each_document
def test_a_program_in_python_can_be_compiled(document: str) -> None:
    for kind, text in blocks(document):
        if kind == "python":
            compile(text, document, "exec", dont_inherit=True)


@each_document
def test_a_profile_is_valid(document: str, tmp_path: Path) -> None:
    for kind, text in blocks(document):
        if kind == "toml" and not tomllib.loads(text).keys() & OTHER_TABLES:
            (tmp_path / "mine.toml").write_text(text)
            load_profile(str(tmp_path / "mine.toml"), over={"backend": {"name": "auto"}})


def has_target(document: str, link: str) -> bool:
    """Whether the file that a link names exists, and contains the heading that the link names."""
    path, _, anchor = link.partition("#")
    file = os.path.normpath(os.path.join(os.path.dirname(document), path)) if path else document
    return (ROOT / file).exists() and (not anchor or (file in DOCUMENTS and anchor in anchors(file)))


@each_document
def test_a_link_has_a_target(document: str) -> None:
    links = re.findall(r"\]\((?![a-z]+:)([^)]+)\)", DOCUMENTS[document])
    assert [link for link in links if not has_target(document, link)] == []


def test_a_link_without_a_target_is_found() -> None:
    assert has_target("docs/pages/profile.md", "long-runs.md#warm-pool")
    assert not has_target("SECURITY.md", "README.md#no-such-heading")
    assert not has_target("configs/README.md", "rules/nothing.toml")


def test_security_md_explains_private_reports_and_links_to_the_table_of_layers() -> None:
    text = DOCUMENTS["SECURITY.md"]
    assert "[SECURITY.md](SECURITY.md)" in DOCUMENTS["README.md"]
    assert "Report a vulnerability" in text and "docs/pages/limits-and-isolation.md#layers" in text
    assert "| layer |" not in text, "the table of layers is only on its page"


def test_the_changelog_names_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", DOCUMENTS["CHANGELOG.md"], re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert __version__ in headings or f"becomes {__version__}" in DOCUMENTS["CHANGELOG.md"]
