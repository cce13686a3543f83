"""The public names of the package: they are the same for programs and for type checkers, and cost nothing before use."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import llm_sandbox_mcp
from llm_sandbox_mcp.compat import llm_sandbox

PATH = Path(llm_sandbox_mcp.__file__)
OWN = {"Artifact", "Execution", "Printed", "Profile", "SandboxError", "Sandboxes", "Session", "load_profile"}


def test_our_own_names_are_eight() -> None:
    assert {*llm_sandbox_mcp.__all__} == {"__version__"} | OWN


def found_by_type_checkers(package: ModuleType) -> dict[str, str]:
    """The names that an `__init__.py` has for type checkers, each with its module; `*` are all of a package."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


@pytest.mark.parametrize(
    ("package", "others"), [(llm_sandbox_mcp, {"*": "compat.llm_sandbox"}), (llm_sandbox, {})], ids=["ours", "theirs"]
)
def test_type_checkers_find_each_name_in_the_module_that_programs_get_it_from(
    package: ModuleType, others: dict[str, str]
) -> None:
    assert found_by_type_checkers(package) == {**package._MODULES, **others}
    assert [name for name in package.__all__ if name != "__version__"] == [*package._MODULES]


def test_each_name_of_llm_sandbox_is_the_same_at_the_top() -> None:
    assert OWN.isdisjoint(llm_sandbox._MODULES)
    for name, module in llm_sandbox._MODULES.items():
        value = getattr(import_module(f"{llm_sandbox.__name__}.{module}"), name)
        assert getattr(llm_sandbox, name) is value
        assert getattr(llm_sandbox_mcp, name) is value


def test_the_import_of_the_package_imports_no_other_module_of_it() -> None:
    """Nor `typing`, which would take longer than all the rest: `import llm_sandbox_mcp` takes a few milliseconds."""
    code = "import sys\nbefore = {*sys.modules}\nimport llm_sandbox_mcp\nprint(*sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PATH.parents[1], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} <= {
        "importlib",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "llm_sandbox_mcp",
        "warnings",
    }


def test_the_package_is_typed() -> None:
    assert (PATH.parent / "py.typed").is_file()
