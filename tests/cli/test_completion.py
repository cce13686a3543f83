"""The scripts that complete commands in shells, in these shells."""

import shutil
from pathlib import Path

import pytest

from .command import called
from .shells import COMPLETING

LINES = {
    "doc": "doctor",
    "completion fi": "fish",
    "client-config claude-d": "claude-desktop",
    "profile show stri": "strict",
    "serve --profile ow": "own.toml",
    "serve --transport ht": "http",
    "run --langu": "--language",
    "run --language javas": "javascript",
    "run --file no": "notes.txt",
    "run --artifacts fol": "folder/",
    "run --folder fol": "folder/",
    "serve --folder fol": "folder/",
    "run analy": "analysis.py",
}
"""What a person has typed when they press Tab, and the only word that can follow."""


@pytest.fixture(scope="module", params=COMPLETING)
def shell(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed; apt-get install {request.param}")
    return str(request.param)


@pytest.fixture
def folder(shell: str, tmp_path: Path) -> Path:
    done = called("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "script").write_text(done.stdout)
    for name in ("own.toml", "notes.txt", "analysis.py"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize("typed", LINES)
def test_a_shell_completes_the_word(shell: str, typed: str, folder: Path) -> None:
    completed = COMPLETING[shell](folder, f"llm-sandbox-mcp {typed}")
    assert [word.rstrip("/") for word in completed] == [LINES[typed].rstrip("/")]


def test_bash_offers_all_profiles_and_only_files_that_can_be_one(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(called("completion", "bash").stdout)
    (tmp_path / "own.toml").touch()
    offered = COMPLETING["bash"](tmp_path, "llm-sandbox-mcp run --profile ")
    assert {"default", "strict", "docker", "own.toml"} <= {*offered}
    assert "script" not in offered
