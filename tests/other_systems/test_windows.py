"""On Windows itself, each command says in one line to use WSL 2, although modules that Windows lacks are missing."""

from pathlib import Path

import pytest

from . import command_on, hidden_on


def test_what_windows_does_not_have_is_hidden() -> None:
    assert hidden_on("win32", "sys.platform") == "ModuleNotFoundError: No module named 'fcntl'"


@pytest.mark.parametrize("words", [[], ["--help"], ["run", "-c", "1"], ["client-config", "cursor"]])
def test_each_command_names_wsl(words: list[str], tmp_path: Path) -> None:
    done = command_on("win32", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "WSL 2: `wsl --install`" in line
