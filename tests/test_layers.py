"""Imports run one way, as in the README's picture, so that each part can be read without the parts above it."""

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

PACKAGE = Path(__file__).parents[1] / "llm_sandbox_mcp"
NAME = PACKAGE.name

LAYERS = (
    {"__main__"},
    {"cli", "compat", "testing"},
    {"compat.rest", "server", "sandboxes"},
    {"wiring"},
    {"service"},
    {"sessions", "libraries"},
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
    "backends.copying",
    "backends.counters",
    "backends.images",
    "backends.layout",
    "backends.libc",
    "backends.listening",
    "backends.listing",
    "backends.patience",
    "backends.room",
    "backends.scanning",
    "backends.settings",
    "backends.system_calls",
    "base.errors",
    "base.git_config",
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
    """The imports of a module: ours by their names in `MODULES`, others marked with `!`. Without type-only imports."""
    return frozenset(_imported(module))


def _imported(module: str) -> Iterator[str]:
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    package = [part for part in package if part]
    for node in _run_time(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (f"!{alias.name}" if not _own(alias.name) else _own(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = node.module or ""
            if not node.level:
                base = _own(name)
                if not base and name != NAME:
                    yield f"!{name}"
                    continue
                above = [base] if base else []
            else:
                above = [*package[: len(package) - node.level + 1], *([name] if name else [])]
            for alias in node.names:
                whole = ".".join([*above, alias.name])
                yield whole if whole in MODULES else ".".join(above)


def _own(name: str) -> str:
    return name.removeprefix(f"{NAME}.") if name.startswith(f"{NAME}.") else ""


def _run_time(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        # An expression contains no import.
        if isinstance(node, ast.expr) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            continue
        yield node
        yield from _run_time(node)


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
    "backends.choosing",
    "backends.copying",
    "backends.folder_copies",
    "backends.counters",
    "backends.images",
    "backends.layout",
    "backends.libc",
    "backends.listening",
    "backends.listing",
    "backends.patience",
    "backends.room",
    "backends.scanning",
    "backends.settings",
    "backends.system_calls",
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
    parts = {*ENGINES} - SETTINGS
    importers = {module for module in OURS if module not in ENGINES and any(name in parts for name in imports(module))}
    assert importers == set()


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
