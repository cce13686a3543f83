"""The documents of the project, and the blocks of code and the commands in them."""

import re
import shlex

from .cli.command import ROOT

_FOLDERS = ("docs", "handlers", "configs", "llm_sandbox_mcp", "tests")

DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for paths in (ROOT.glob("*.md"), *(ROOT.joinpath(folder).rglob("*.md") for folder in _FOLDERS))
    for path in sorted(paths)
}
"""The text of each document by its path."""

GUIDE = ("README.md", *(path for path in DOCUMENTS if path.startswith("docs/pages/")))
"""The documents for users, whose commands and programs are run."""

OTHER_TABLES = {"project", "runner", "case"}
"""A block of TOML that is not a profile has one of these: it is about a package, a language or a selftest."""


def blocks(document: str) -> list[tuple[str, str]]:
    """The blocks of code in a document, each with its language."""
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```$", DOCUMENTS[document], re.MULTILINE | re.DOTALL)
    return [(kind, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)) for indent, kind, text in found]


def lines(document: str) -> list[str]:
    """What a person types: the lines of blocks for a shell, without comments."""
    typed = [line for kind, block in blocks(document) if kind == "sh" for line in block.splitlines()]
    return [line for line in (re.sub(r"\s+#\s.*", "", line) for line in typed) if line]


def words(line: str) -> list[str]:
    """The words of the call of `llm-sandbox-mcp` in a line, which can follow other words, as in `srun ...`; or none."""
    called = re.search(r"(?:^|\s)llm-sandbox-mcp(\s.*|$)", line)
    return ["llm-sandbox-mcp", *shlex.split(called[1])] if called else []


def phrases(document: str) -> list[str]:
    """The text of each piece of inline code, in one line."""
    text = re.sub(r"^ *```.*?^ *```$", "", DOCUMENTS[document], flags=re.MULTILINE | re.DOTALL)
    return [" ".join(phrase.split()) for phrase in re.findall(r"`([^`]+)`", text)]


def anchors(document: str) -> set[str]:
    """The anchors of a document's headings, as the places that show it make them."""
    text = re.sub(r"^```.*?^```$", "", DOCUMENTS[document], flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
