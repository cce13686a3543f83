"""The page of attacks and the table of deviations name only existing tests; the page names every file of attacks."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT
from tests.hostile.deviations import CONTAINERS, FINDINGS, OUTCOMES, PODS

TESTS = ROOT / "tests"
PAGE = TESTS / "hostile" / "README.md"
NAMED = re.findall(r"`(\w+/test_\w+\.py)(?:::(\w+))?`", PAGE.read_text().partition("|---|")[2])


def names_of(file: Path) -> set[str]:
    """The functions of a file, with those of modules from which it imports everything (`*`)."""
    body = ast.parse(file.read_text()).body
    imported = [node.module for node in body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
    own = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return own.union(
        *(names_of(ROOT / f"{module}.py".replace(".", "/", str(module).count("."))) for module in imported)
    )


def test_the_page_names_only_existing_tests() -> None:
    assert len(NAMED) > 50
    assert [file for file, _ in NAMED if not (TESTS / file).exists()] == []
    assert [test for file, test in NAMED if test and test not in names_of(TESTS / file)] == []


def test_every_file_of_attacks_is_on_the_page() -> None:
    existing = {f"hostile/{file.name}" for file in PAGE.parent.glob("test_*.py")}
    assert existing - {file for file, test in NAMED if not test} == set()


@pytest.fixture(scope="module")
def cases() -> list[str]:
    """The names of all cases of attacks, without their files."""
    environment = {name: value for name, value in os.environ.items() if name != "SANDBOX_ATTACK"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", str(PAGE.parent)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_every_row_of_deviations_names_an_existing_case(cases: list[str]) -> None:
    assert len(cases) > 1000
    outcomes = [name.format(backend) for name, (backends, _) in OUTCOMES.items() for backend in backends]
    assert [name for name in outcomes if not any(case.startswith(name) for case in cases)] == []
    found = [name if "[" in name else f"{name}[{backend}]" for name in FINDINGS for backend in CONTAINERS + PODS]
    assert [name for name in found if name not in cases] == []
