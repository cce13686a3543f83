"""What the README tells people to type works."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from llm_sandbox_mcp.cli.parser import build

from .cli.command import LIMIT, ROOT, command, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)

LINES = sorted({line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line})
COMMANDS = [line for line in LINES if line.startswith("llm-sandbox-mcp")]

ONLY_PARSED = ("--transport http", "--library")
"""Those that serve until they are stopped, and those that need a package index: only read, not run."""


def block(kind: str) -> str:
    (found,) = [text for name, text in BLOCKS if name == kind]
    return str(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the README's reader has it."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "mine.toml").write_text(block("toml"))
    return tmp_path


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("line", [line for line in COMMANDS if not any(part in line for part in ONLY_PARSED)])
def test_a_command_of_the_readme_runs(line: str, folder: Path) -> None:
    done = command(*shlex.split(line)[1:], cwd=folder)
    assert done.returncode == 0, done


@pytest.mark.parametrize("line", [line for line in COMMANDS if any(part in line for part in ONLY_PARSED)])
def test_a_command_of_the_readme_is_understood(line: str) -> None:
    assert build().parse_args(shlex.split(line)[1:]).module


def test_every_other_command_is_one_of_make_or_the_installation() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    others = [line for line in LINES if line not in COMMANDS]
    assert [line for line in others if line != "pip install ." and line.removeprefix("make ") not in targets] == []


def test_what_ci_calls_is_in_the_readme() -> None:
    called = re.findall(r"^make \w+$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    assert called == ["make lint", "make test"]
    assert set(called) <= set(LINES)


def test_the_entry_for_claude_desktop_is_what_the_command_prints() -> None:
    printed = json.loads(command("client-config", "claude-desktop").stdout)
    shown = json.loads(block("json"))
    for entry in (printed, shown):
        entry["mcpServers"]["llm-sandbox"].update(command="", args=[])
    assert shown == printed


def test_the_profile_of_the_readme_is_right(folder: Path) -> None:
    assert tomllib.loads((folder / "mine.toml").read_text())["limits"]["memory"] == "1GiB"
    assert command("profile", "check", str(folder / "mine.toml")).returncode == 0


@pytest.mark.usefixtures("embedded")
def test_the_program_of_the_readme_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python")],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "21\n"), done


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("https://")]
    assert [link for link in links if not (ROOT / link).exists()] == []
    assert links
