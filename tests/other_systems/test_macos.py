"""On macOS, bubblewrap is refused with the next step, and everything that needs no sandbox works."""

import json
from pathlib import Path

import pytest

from . import command_on, hidden_on

NEXT_STEP = "start Docker or Podman and use the profile docker or podman, or run the server on Linux"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A profile that keeps everything in the test's folder, and sets what is compared with the machine's memory."""
    folders = f'[server]\nruntime = "{tmp_path}/runtime"\ncache = "{tmp_path}/cache"\n'
    (tmp_path / "own.toml").write_text(f'{folders}[limits]\nmemory = "1GiB"\n')
    return tmp_path / "own.toml"


@pytest.mark.parametrize("expression", ["os.splice", "select.epoll", "open('/proc/meminfo')"])
def test_what_only_linux_has_is_hidden(expression: str) -> None:
    assert hidden_on("darwin", "sys.platform") == "darwin"
    assert "Error" in hidden_on("darwin", expression)


def test_a_run_on_bubblewrap_is_refused_with_the_next_step(own: Path, tmp_path: Path) -> None:
    done = command_on("darwin", "run", "--profile", str(own), "-c", "1", cwd=tmp_path)
    said = f"llm-sandbox-mcp: bubblewrap needs Linux, and this system is macOS; {NEXT_STEP}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_where_no_engine_works_auto_names_those_of_macos(own: Path, tmp_path: Path) -> None:
    own.write_text(
        own.read_text() + '[backend]\nname = "auto"\n[docker]\nhost = "unix:///none"\n[podman]\nhost = "unix:///none"\n'
    )
    done = command_on("darwin", "run", "--profile", str(own), "-c", "1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no engine works here: embedded: bubblewrap needs Linux, and this system is macOS; docker" in done.stderr
    assert done.stderr.endswith("; start Docker, or Podman's machine (`llm-sandbox-mcp doctor` shows details)\n")


def test_the_doctor_says_what_is_missing(own: Path, tmp_path: Path) -> None:
    done = command_on("darwin", "doctor", "--profile", str(own), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "bubblewrap needs Linux, and this system is macOS" in done.stdout
    assert f"platform: {NEXT_STEP}\n" in done.stdout
    assert done.stdout.endswith("Code cannot run here.\n")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("", f"bubblewrap needs Linux, and this system is macOS; {NEXT_STEP}"),
        (
            "docker",
            "docker does not answer at unix:///none: No such file or directory; start it, or name its address in ",
        ),
    ],
)
def test_nothing_is_prepared_for_an_engine_that_makes_no_sandboxes(
    own: Path, tmp_path: Path, engine: str, said: str
) -> None:
    if engine:
        own.write_text(f'{own.read_text()}[backend]\nname = "{engine}"\n[{engine}]\nhost = "unix:///none"\n')
    done = command_on("darwin", "prepare", "python", "bash", "--profile", str(own), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"llm-sandbox-mcp: {said}") and done.stderr.count("\n") == 1
    assert not (tmp_path / "cache" / "environments").exists()


@pytest.mark.parametrize(
    "words",
    [["--version"], ["--help"], ["languages"], ["profile", "check", "own.toml"], ["sweep", "--profile", "own.toml"]],
)
def test_a_command_that_needs_no_sandbox_works(words: list[str], own: Path, tmp_path: Path) -> None:
    done = command_on("darwin", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_host_gets_the_entry_in_the_folder_of_macos(tmp_path: Path) -> None:
    words = ("client-config", "claude-desktop", "--profile", "docker", "--write")
    done = command_on("darwin", *words, cwd=tmp_path, HOME=str(tmp_path))
    assert done.returncode == 0, done
    file = tmp_path / "Library/Application Support/Claude/claude_desktop_config.json"
    assert json.loads(file.read_text())["mcpServers"]["llm-sandbox"]["args"] == ["--profile", "docker"]
