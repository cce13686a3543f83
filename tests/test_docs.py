"""The pages of `docs/` can be built, contain every public name, and name only what exists."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import llm_sandbox_mcp

from .cli.command import ROOT

FIRST = (ROOT / "docs/pages/index.md").read_text(encoding="utf-8")
WALKS = (ROOT / "docs/pages/walks.md").read_text(encoding="utf-8")
PLACES = re.findall(r"`([\w/]+\.py)`(?: `([\w.]+)`)?", WALKS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(ROOT / "docs/mkdocs.yml")]
    done = subprocess.run([*command, "-d", str(folder)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'<h\d id="llm_sandbox_mcp\.([\w.]+)"', page.read_text(encoding="utf-8")))


def test_the_pages_contain_every_public_name(site: Path) -> None:
    modules = llm_sandbox_mcp._MODULES
    shown = anchors(site / "index.html") | anchors(site / "blocking.html")
    assert {f"{modules[name]}.{name}" for name in modules} - shown == set()


def test_the_program_of_the_first_page_runs() -> None:
    [program] = re.findall(r"```python\n(.*?)```", FIRST, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.stderr) == ("42\n", "")


def test_the_pages_about_llm_sandbox_contain_no_other_names(site: Path) -> None:
    shown = {name for name in anchors(site / "blocking.html") if name.count(".") == 2}
    assert {name.rpartition(".")[2] for name in shown} - {*llm_sandbox_mcp.__all__} == set()


@pytest.mark.parametrize("page", ["index.html", "blocking.html", "backends.html"])
def test_every_class_and_function_of_the_pages_is_documented(site: Path, page: str) -> None:
    """What follows the name of a class or function, and its signature, is its docstring."""
    text = (site / page).read_text(encoding="utf-8")
    parts = re.split(r'<h\d id="(llm_sandbox_mcp\.[\w.]+)" class="doc doc-heading">', text)[1:]
    entries = dict(zip(parts[::2], parts[1::2], strict=True))
    silent = [
        name
        for name, entry in entries.items()
        if re.search(r"doc-symbol-(class|function|method)", entry.partition("</h")[0]) and "<p>" not in entry
    ]
    assert len(entries) > 20
    assert silent == []


def test_the_walks_name_only_what_exists() -> None:
    assert len(PLACES) > 30
    assert [place for place in PLACES if not exists(*place)] == []


def exists(file: str, name: str) -> bool:
    """Whether a file of the package, or of the project, defines a name; without a name, whether there is the file."""
    paths = [path for folder in ("llm_sandbox_mcp", "") if (path := ROOT / folder / file).is_file()]
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    for part in filter(None, name.split(".")):
        nodes = [inner for node in nodes for inner in getattr(node, "body", []) if part in names(inner)]
    return bool(nodes)


def names(node: ast.AST) -> set[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()
