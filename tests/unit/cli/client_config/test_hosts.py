"""The hosts and the command with which they start the server."""

import sys
from pathlib import Path

import pytest

from llm_sandbox_mcp.cli.client_config import starting
from llm_sandbox_mcp.cli.client_config.hosts import host, host_names
from llm_sandbox_mcp.cli.client_config.starting import in_cache_of_uv, starting_command
from llm_sandbox_mcp.cli.parser import build


def test_the_help_text_names_every_host() -> None:
    (commands,) = [action.choices for action in build()._actions if isinstance(action.choices, dict)]
    (text,) = [action.help for action in commands["client-config"]._actions if action.dest == "client"]
    assert [name for name in host_names() if name not in text] == []


@pytest.mark.parametrize("system", ["linux", "darwin", "win32", "freebsd14"])
@pytest.mark.parametrize("name", host_names())
def test_a_host_has_a_file_on_each_system(name: str, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    path = host(name).path({"HOME": "/home/x"})
    assert path.suffix in (".json", ".toml", ".yaml")
    assert "$" not in str(path) and "~" not in str(path)


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """An interpreter in the environment that uvx makes."""
    (tmp_path / "CACHEDIR.TAG").touch()
    python = tmp_path / "archive-v0/Xyz/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def test_an_environment_of_uvx_is_known_by_the_cache_of_uv(cached: Path, tmp_path: Path) -> None:
    assert in_cache_of_uv(cached)
    (tmp_path / "CACHEDIR.TAG").unlink()
    assert not in_cache_of_uv(cached)
    assert not in_cache_of_uv(Path(sys.executable))


LOCAL = '{"url": "file:///opt/project", "dir_info": {}}'
CLONED = '{"url": "https://example.org/x.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}'


@pytest.mark.parametrize(
    ("recorded", "extras", "origin"),
    [
        (None, [], []),
        (LOCAL, [], ["--from", "file:///opt/project"]),
        (CLONED, [], ["--from", "git+https://example.org/x.git@abc"]),
        (None, ["docker"], ["--from", "llm-sandbox-mcp[docker]"]),
        (LOCAL, ["docker", "podman"], ["--from", "llm-sandbox-mcp[docker,podman] @ file:///opt/project"]),
    ],
)
def test_under_uvx_the_command_is_uvx(
    recorded: str | None, extras: list[str], origin: list[str], cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return recorded if name == "direct_url.json" else None

    monkeypatch.setattr(sys, "executable", str(cached))
    monkeypatch.setattr(starting, "distribution", lambda name: Installed())
    assert starting_command(extras) == ["uvx", *origin, "llm-sandbox-mcp"]
