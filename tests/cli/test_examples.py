"""The examples in the help texts work."""

import shlex
from pathlib import Path

import pytest

from llm_sandbox_mcp.cli.examples import EXAMPLES
from tests.unit.cli.test_examples import called as expanded

from .command import as_typed

LINES = sorted({line for lines in EXAMPLES.values() for line in lines})
NOT_RUN = ("--transport http", "--library", "--profile docker", "--profile podman", "--clear", "~/")
"""What runs until it is stopped, needs a package index, an engine or a shell, or clears a cache that other tests use."""

EXAMPLES_RUN = [
    # The README, whose commands are run too, starts servers with the same options.
    pytest.param(line, marks=[pytest.mark.only_in_all] if " serve " in line else [])
    for line in LINES
    if not any(part in line for part in NOT_RUN)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that examples use."""
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    (tmp_path / "analysis.py").write_text("open('rows.txt', 'w').write(open('data.csv').read())\n")
    for name in ("data", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine.toml").write_text('[limits]\ntimeout = "2m"\n')
    return tmp_path


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("line", EXAMPLES_RUN)
def test_an_example_runs(line: str, folder: Path) -> None:
    argv = shlex.split(expanded(line))[1:]
    # These write into a person's home; the others share what is prepared for the tests.
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": ""} if "client-config" in line else {}
    done = as_typed(*argv, cwd=folder, **home)
    assert done.returncode == 0, done
