"""The site of `docs/` can be built; it contains every document, tool, command, key of a profile and public name; every
link in it has a target; and its search finds them, also when it is opened as a file."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import llm_sandbox_mcp
from llm_sandbox_mcp.compat import llm_sandbox
from llm_sandbox_mcp.host.folders import CONFIGS
from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server.schemas import define_tools

from .cli.command import LIMIT, ROOT
from .documents import DOCUMENTS, GUIDE, anchors
from .unit.cli.test_examples import PARSERS

PLACES = re.findall(r"`([\w/]+\.py)`(?: `([\w.]+)`)?", DOCUMENTS["docs/pages/how-it-is-built.md"])


def page_of(document: str) -> str:
    """The page of a document, by its path without `.html`."""
    return re.sub(r"README\.md$", "index.md", re.sub("^docs/(pages/)?", "", document)).removesuffix(".md")


PAGES = [*map(page_of, re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "docs/mkdocs.yml").read_text(), re.MULTILINE))]
"""The pages that the navigation names."""


class Page(HTMLParser):
    """The anchors and links of a page, what a browser loads with it, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.anchors.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif source := found.get("src") or (tag == "link" and found.get("href")):
            self.loads.add(source)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built where no program, no home and no profile of this machine can be found."""
    folder, home = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("home")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "docs/mkdocs.yml")]
    surroundings = {"HOME": str(home), "PATH": str(home), "LLM_SANDBOX_PROFILE": "none.toml"}
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "TMPDIR", "LANG") if name in os.environ}
    done = subprocess.run(
        [*command, "-d", str(folder)], env=kept | surroundings, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [*home.iterdir()] == []
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """Every page by its path, without `.html`."""
    return {str(path.relative_to(site).with_suffix("")): Page(path) for path in site.rglob("*.html")}


def test_the_navigation_names_exactly_the_pages(pages: dict[str, Page]) -> None:
    assert len(PAGES) > 30
    assert sorted(pages.keys() - {"404"}) == sorted(PAGES)
    assert [name for name in GUIDE if page_of(name) not in PAGES] == []


def test_the_site_starts_with_the_user_of_a_release(pages: dict[str, Page]) -> None:
    text = pages["index"].text
    assert 0 < text.index("uvx") < text.index("make run")


def test_documents_that_github_shows_have_nothing_that_only_the_site_understands() -> None:
    assert [name for name in GUIDE if ":::" in DOCUMENTS[name]] == []


def target(page: str, link: str) -> tuple[str, str]:
    """The file and the anchor that a link of a page leads to."""
    parts = urlsplit(link)
    # The page for wrong addresses, which can be anywhere, has absolute links.
    path = os.path.join(os.path.dirname(page), unquote(parts.path) or f"/{page}.html")
    return os.path.normpath(path).lstrip("/"), unquote(parts.fragment)


def test_every_link_has_a_target(site: Path, pages: dict[str, Page]) -> None:
    links = [(name, link) for name, page in pages.items() for link in page.links | page.loads if ":" not in link]
    leads = {(name, link): target(name, link) for name, link in links}
    assert len(links) > 2000
    assert [link for link, (file, _) in leads.items() if not (site / file).is_file()] == []
    to_anchors = {link: lead for link, lead in leads.items() if lead[1]}
    assert len(to_anchors) > 500
    assert [
        link for link, (file, anchor) in to_anchors.items() if anchor not in pages[file.removesuffix(".html")].anchors
    ] == []


def test_pages_load_nothing_from_other_hosts(pages: dict[str, Page]) -> None:
    assert [source for page in pages.values() for source in page.loads if urlsplit(source).netloc] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize(
    ("page", "words", "found"),
    [
        ("index.html", "landlock", "limits-and-isolation.html#layers"),
        ("reference/tools.html", "client_roots", "reference/profile.html#files"),
    ],
)
def test_the_search_works_in_a_site_that_is_opened_as_a_file(site: Path, page: str, words: str, found: str) -> None:
    command = ["node", str(ROOT / "tests/searching.js"), str(site / page), words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert found in json.loads(done.stdout)


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if page_of(name) in PAGES])
def test_every_heading_of_a_document_is_on_its_page(document: str, pages: dict[str, Page]) -> None:
    assert anchors(document) - pages[page_of(document)].anchors == set()


def test_no_block_of_code_is_left_as_text(pages: dict[str, Page]) -> None:
    assert [name for name, page in pages.items() if "```" in page.text] == []


def test_pages_contain_nothing_of_this_machine(pages: dict[str, Page]) -> None:
    assert [name for name, page in pages.items() if str(ROOT) in page.text] == []


def keys() -> set[str]:
    """The names of all keys of the default profile."""
    sections = tomllib.loads((CONFIGS / "default.toml").read_text(encoding="utf-8"))
    sections |= {f"languages.{name}": section for name, section in sections.pop("languages").items()}
    return {f"{name}.{key}" for name, section in sections.items() for key in section}


def test_the_profile_reference_names_every_key_and_explains_it(site: Path, pages: dict[str, Page]) -> None:
    named = keys()
    assert {"limits.memory", "languages.python.libraries", "kubernetes.pod_manifest"} <= named
    assert {anchor for anchor in pages["reference/profile"].anchors if "." in anchor} == named
    text = (site / "reference/profile.html").read_text(encoding="utf-8")
    rows = re.findall(r'<code id="([\w.]+)">.*?</td>\s*<td>(.+?)</td>\s*<td>(.*?)</td>', text, re.DOTALL)
    assert {name for name, default, meaning in rows if default and meaning} == named


def test_the_tools_reference_names_every_tool_argument_field_and_prompt(pages: dict[str, Page]) -> None:
    page = pages["reference/tools"]
    profile = load_profile(over={"files": {"folders": ["/x:rw"]}, "tools": {"old_names": True}})
    tools = define_tools(profile, included_languages(), host_files=True)
    assert {"copy_file", "get_language_details"} <= tools.keys() <= page.anchors
    for tool in tools.values():
        assert {f"{tool.name}.{name}" for name in tool.input_schema["properties"]} <= page.anchors
        assert {name for name in (tool.output_schema or {}).get("properties", ()) if name not in page.text} == set()
    assert {"analyse_a_file", "plot", "check_a_claim"} <= page.anchors


def test_the_command_line_reference_names_every_argument_of_every_command(site: Path) -> None:
    page = (site / "reference/command-line.html").read_text(encoding="utf-8")
    parts = re.split(r'<h2 id="([\w-]+)">', page)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert sections.keys() == {name.replace(" ", "-") for name in PARSERS}
    for name, parser in PARSERS.items():
        shown = "\n".join(re.findall(r"<code>(.+?)</code>", sections[name.replace(" ", "-")]))
        named = {
            action.option_strings[-1] if action.option_strings else str(action.metavar) for action in parser._actions
        }
        named -= {"--help", "COMMAND", "ACTION", "None"}
        assert {argument for argument in named if not re.search(rf"^\W*{argument}\b", shown, re.MULTILINE)} == set(), (
            name
        )


def public_names(page: Path) -> set[str]:
    return set(re.findall(r'<h\d id="llm_sandbox_mcp\.([\w.]+)"', page.read_text(encoding="utf-8")))


def test_the_pages_contain_every_public_name(site: Path) -> None:
    for page, package in (("api", llm_sandbox_mcp), ("blocking", llm_sandbox)):
        room = package.__name__.partition(".")[2]
        named = {".".join(filter(None, (room, module, name))) for name, module in package._MODULES.items()}
        assert named - public_names(site / f"reference/{page}.html") == set()


def test_the_pages_about_llm_sandbox_contain_no_other_names(site: Path) -> None:
    shown = {name for name in public_names(site / "reference/blocking.html") if name.count(".") == 3}
    assert {name.rpartition(".")[2] for name in shown} == {*llm_sandbox._MODULES}


@pytest.mark.parametrize("page", ["reference/api.html", "reference/blocking.html", "reference/backends.html"])
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


def test_the_page_about_the_design_names_only_what_exists() -> None:
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
