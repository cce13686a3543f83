"""Imports run one way, as `docs/pages/how-it-is-built.md` shows it, so that each part can be read without the parts above it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends import BACKENDS
from llm_sandbox_mcp.languages.languages import Languages
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server.schemas import CopyFile, ExecuteCode, GetArtifacts, define_tools

from .documents import DOCUMENTS

PACKAGE = Path(__file__).parents[1] / "llm_sandbox_mcp"
NAME = PACKAGE.name

LAYERS = (
    {"__main__"},
    {"cli", "compat", "testing"},
    {"server", "sandboxes"},
    {"wiring"},
    {"service"},
    {"sessions", "libraries", "state"},
    {"files", "pool"},
    {"runs"},
    {"network", "profile"},
    {"languages", "rules"},
    {"backends"},
    {"host"},
    {"toml"},
    {"aio", "base"},
)
"""From the outside in. A part can import parts below it, and parts of its own layer if no import cycle results."""

ENGINE_MAY_IMPORT = {
    "aio.fds",
    "aio.tasks",
    "backends.base",
    "backends.bpf",
    "backends.calls",
    "backends.copying",
    "backends.counters",
    "backends.layout",
    "backends.libc",
    "backends.listening",
    "backends.listing",
    "backends.patience",
    "backends.room",
    "backends.scanning",
    "backends.settings",
    "base.errors",
    "base.git_config",
    "base.messages",
    "base.open_folders",
    "base.policy",
    "base.results",
    "base.text",
    "base.units",
    "host.programs",
    "host.server_folder",
    "toml.corrections",
    "toml.model",
}
"""What the modules of an engine can import besides each other and their own client library."""


def modules() -> dict[str, Path]:
    """Every module, by its name without the name of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@cache
def imports(module: str) -> frozenset[str]:
    """The imports of a module: ours by their names in `MODULES`, others marked with `!`.

    Those for type checkers count, and so do those by `import_module`. The lazy names of an `__init__.py` do not: it
    imports nothing for them by itself.
    """
    return frozenset(_imported(module))


def _imported(module: str) -> Iterator[str]:
    package = _package(module)
    for node in _eager(tree_of(module), lazy=MODULES[module].name == "__init__.py"):
        if isinstance(node, ast.Import):
            yield from (_own(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = _own(f"{origin}.{alias.name}")
                yield whole if whole in MODULES else _own(origin)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module",
            "__import__",
        ):
            yield from _imported_by_name(module, node.args[0])


def _eager(tree: ast.AST, *, lazy: bool) -> Iterator[ast.AST]:
    """The parts of a module; if it can have lazy names, without what is there only for them."""
    for node in ast.iter_child_nodes(tree):
        if lazy and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (each for each in node.body if not _offers(each))
        elif not (lazy and isinstance(node, ast.FunctionDef) and node.name == "__getattr__"):
            yield node
            yield from _eager(node, lazy=lazy)


def _offers(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and all(alias.asname == alias.name for alias in node.names)


def _imported_by_name(module: str, argument: ast.expr) -> Iterator[str]:
    """What a text can name, a text with gaps, or an entry of a table in the same module."""
    if isinstance(argument, ast.Subscript):
        values = {
            ast.unparse(node.targets[0]): node.value for node in tree_of(module).body if isinstance(node, ast.Assign)
        }
        table = values.get(ast.unparse(argument.value))
        names = table.values if isinstance(table, ast.Dict) else [argument]
    else:
        names = [argument]
    for name in names:
        text = _text(module, name)
        if dots := len(text) - len(text.lstrip(".")):
            package = _package(module)
            text = ".".join([*package[: len(package) - dots + 1], text[dots:]])
        pattern = re.compile(re.escape(text).replace(re.escape(_GAP), r"\w+"))
        yield from {one for one in MODULES if pattern.fullmatch(f"{NAME}.{one}")} or {_own(text)}


_GAP, _UNKNOWN = "*", "?"


def _text(module: str, name: ast.expr) -> str:
    match name:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(module, part) for part in parts)
        case ast.FormattedValue(value=ast.Name(id="__name__")):
            return f"{NAME}.{module}"
        case ast.FormattedValue():
            return _GAP
    return _UNKNOWN


def _package(module: str) -> list[str]:
    parts = [NAME, *(module.split(".") if module else [])]
    return parts if MODULES[module].name == "__init__.py" else parts[:-1]


def _own(name: str) -> str:
    return name.removeprefix(NAME).removeprefix(".") if name.partition(".")[0] == NAME else f"!{name}"


def layer(module: str) -> int:
    while module:
        for number, names in enumerate(LAYERS):
            if module in names:
                return number
        module = module.rpartition(".")[0]
    raise LookupError("this module has no place")


OURS = sorted(module for module in MODULES if module)


def test_every_module_has_its_place() -> None:
    placed = set().union(*LAYERS)
    assert {module.partition(".")[0] for module in OURS} - placed == set()


def test_the_page_about_the_design_shows_the_layers() -> None:
    shown = DOCUMENTS["docs/pages/how-it-is-built.md"].partition("## Imports run one way")[2].split("```")[1]
    assert tuple({*line.split(", ")} for line in shown.strip().splitlines()) == LAYERS


def test_imports_run_one_way() -> None:
    """No module imports a module of a layer above it."""
    assert [(module, name) for module in OURS for name in ours(module) if layer(name) < layer(module)] == []


def ours(module: str) -> set[str]:
    """The modules of this package that a module imports."""
    return {name for name in imports(module) if name and not name.startswith("!")}


def test_no_modules_import_each_other_in_a_circle() -> None:
    rest = {module: {n for n in imports(module) if n in MODULES and n not in ("", module)} for module in OURS}
    while free := [module for module, needed in rest.items() if not needed & rest.keys()]:
        for module in free:
            del rest[module]
    assert rest == {}


def test_only_grammars_are_imported_by_a_name_that_no_module_contains() -> None:
    assert {module for module in OURS if f"!{_UNKNOWN}" in imports(module)} == {"rules.worker"}


def test_only_the_server_imports_mcp() -> None:
    importers = {module for module in OURS if any(name.partition(".")[0] == "!mcp" for name in imports(module))}
    assert {module for module in importers if layer(module) != layer("server")} == set()
    assert importers


def test_only_programs_and_the_library_for_them_read_the_environment() -> None:
    readers = set()
    for module in OURS:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Attribute):
                found = node.attr if isinstance(node.value, ast.Name) and node.value.id == "os" else ""
            else:
                found = node.name if isinstance(node, ast.alias) else ""
            if found in ("environ", "environb", "getenv", "getenvb"):
                readers.add(module)
    assert readers == {"__main__", "sandboxes"}


def test_modules_below_the_interfaces_do_not_use_their_words() -> None:
    """No names of tools, of their arguments, or of command line options: errors and notes have a `Step` instead."""
    words = {tool.name for tool in define_tools(load_profile(), Languages(()), host_files=True).values()}
    words |= {name for tool in (ExecuteCode, CopyFile, GetArtifacts) for name in tool.model_fields if "_" in name}
    words |= {*re.findall(r'"(--[a-z-]+)"', MODULES["cli.parser"].read_text(encoding="utf-8"))}
    spoken = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, words))})(?![\w-])")
    below = [module for module in OURS if layer(module) >= layer("wiring")]
    found = [
        (module, text) for module in below for text in literals(tree_of(module)) if " " in text and spoken.search(text)
    ]
    assert found == []


def literals(tree: ast.AST) -> Iterator[str]:
    """The strings of a module that are not docstrings."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant) and isinstance(child.value, str) and not isinstance(node, ast.Expr):
                yield child.value


SHARED = {
    "backends",
    "backends.archive",
    "backends.base",
    "backends.bpf",
    "backends.calls",
    "backends.choosing",
    "backends.copying",
    "backends.folder_copies",
    "backends.counters",
    "backends.layout",
    "backends.libc",
    "backends.listening",
    "backends.listing",
    "backends.patience",
    "backends.room",
    "backends.scanning",
    "backends.settings",
}
"""What all backends share; the other modules belong to single engines, or to the engines that have containers."""
ENGINES = [module for module in OURS if module.startswith("backends.") and module not in SHARED]


CONTAINERS = ("backends.docker", "backends.podman")
"""The engines that share `backends.containers`."""
LIVING = {f"backends.containers.{name}" for name in ("agent", "container", "removal", "sandbox")}
"""What Kubernetes shares with them: how a sandbox lives in a container, independent of what runs the container."""


def test_an_engine_imports_only_what_all_backends_may_import() -> None:
    for module in ENGINES:
        own = {".".join(module.split(".")[:2])} | ({"backends.containers"} if module.startswith(CONTAINERS) else set())
        if module.startswith("backends.kubernetes"):
            own |= LIVING
        others = {name for name in ours(module) if not name.startswith(tuple(own))}
        assert others <= ENGINE_MAY_IMPORT, module


def test_only_its_own_backend_imports_the_package_of_an_engine() -> None:
    for engine in ("docker", "podman", "kubernetes"):
        importers = {module for module in OURS if any(n.partition(".")[0] == f"!{engine}" for n in imports(module))}
        assert {".".join(module.split(".")[:2]) for module in importers} == {f"backends.{engine}"}


SETTINGS = {f"backends.{name}.settings" for name in BACKENDS}
"""The settings of each engine in the profile, which are cheap to import."""


def test_other_modules_import_only_the_settings_of_an_engine() -> None:
    """But for the table of engines, which imports the one that the profile names."""
    parts = {*ENGINES} - SETTINGS
    importers = {module for module in OURS if module not in ENGINES and any(name in parts for name in imports(module))}
    assert importers == {"backends"}


@pytest.mark.parametrize("module", sorted(SETTINGS))
def test_the_settings_of_an_engine_do_not_import_the_engine(module: str) -> None:
    allowed = {
        "backends.settings",
        "backends.containers.settings",
        "backends.kubernetes.pod_manifest",
        "base.units",
        "toml.model",
    }
    assert {name for name in imports(module) if not name.startswith("!")} <= allowed
