"""The public names of the package: they are the same for programs and for type checkers, and cost nothing before use."""

import ast
import subprocess
import sys
from pathlib import Path

import llm_sandbox_mcp

PATH = Path(llm_sandbox_mcp.__file__)


def test_type_checkers_find_each_name_in_the_module_that_programs_get_it_from() -> None:
    (block,) = [node for node in ast.parse(PATH.read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
    found = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert found == llm_sandbox_mcp._MODULES
    assert llm_sandbox_mcp.__all__ == ["__version__", *llm_sandbox_mcp._MODULES]


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
