"""`llm-sandbox-mcp client-config`: the entry for each host, printed or written into the host's file in a home of its own."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from llm_sandbox_mcp.cli.client_config.hosts import host_names

from .command import LIMIT, ROOT, called
from .test_commands import INITIALIZE

FILES = {
    "claude-code": "project/.mcp.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex-cli": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "gemini-cli": ".gemini/settings.json",
    "goose": ".config/goose/config.yaml",
    "lm-studio": ".lmstudio/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
}
"""Where the documentation of each host says that its file is on Linux, below the home; commands run in `project`."""

TABLES = {"codex-cli": "mcp_servers", "goose": "extensions", "vscode": "servers", "zed": "context_servers"}
"""The table of servers, if it is not `mcpServers`."""

KEPT = {
    ".json": '{\n  "theme": "dark",\n  "TABLE": {\n    "other": {\n      "command": "npx"\n    }\n  }\n}\n',
    ".toml": '# mine\ntheme = "dark"\n\n[TABLE.other]\ncommand = "npx"  # keep\n',
    ".yaml": "# mine\ntheme: dark\nTABLE:\n  other:\n    cmd: npx   # keep\n",
}
"""A file with another server."""


class Home:
    """A person's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "project").mkdir()

    def config(self, *arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
        unset = dict.fromkeys(("XDG_CONFIG_HOME", "CODEX_HOME"), "")
        home = str(self.folder)
        return called("client-config", *arguments, cwd=self.folder / "project", **{**unset, "HOME": home, **changes})

    def write(self, *arguments: str, **changes: str) -> str:
        done = self.config(*arguments, "--write", **changes)
        assert done.returncode == 0, done
        return done.stdout

    def kept(self, host: str) -> Path:
        """The host's file, with another server in it."""
        path = self.folder / FILES[host]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(KEPT[path.suffix].replace("TABLE", TABLES.get(host, "mcpServers")))
        return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def parsed(text: str, suffix: str) -> Any:
    match suffix:
        case ".toml":
            return tomllib.loads(text)
        case ".yaml":
            return YAML(typ="safe", pure=True).load(text)
    return json.loads(text)


def content(path: Path) -> Any:
    return parsed(path.read_text(), path.suffix)


def test_each_host_has_a_case() -> None:
    assert host_names() == sorted(FILES)


def printed(host: str, home: Home) -> list[str]:
    """The command line of the entry that is printed for a host; its file is named, and not made."""
    done = home.config(host, "--profile", "strict")
    assert done.returncode == 0
    path = home.folder / FILES[host]
    assert str(path.name if host == "claude-code" else path) in done.stderr
    assert not path.exists()
    servers = parsed(done.stdout, path.suffix)[TABLES.get(host, "mcpServers")]
    entry = servers["llm-sandbox"]
    return [entry.get("command") or entry["cmd"], *entry["args"]]


@pytest.mark.parametrize("host", FILES)
def test_the_entry_of_each_host_is_the_same_command_with_an_absolute_path(host: str, home: Home) -> None:
    program, *arguments = printed(host, home)
    assert Path(program).is_absolute()
    assert arguments[-2:] == ["--profile", "strict"]
    assert [program, *arguments] == printed("claude-desktop", home)


def test_the_entry_starts_a_server_with_a_minimal_environment(home: Home) -> None:
    answer = subprocess.run(
        printed("claude-desktop", home),
        input=json.dumps(INITIALIZE) + "\n",
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert json.loads(answer.stdout)["result"]["serverInfo"]["name"] == "llm-sandbox-mcp"


@pytest.mark.parametrize("host", FILES)
def test_writing_makes_the_file_of_a_host_that_has_none(host: str, home: Home) -> None:
    shown = home.write(host)
    path = home.folder / FILES[host]
    assert content(path) == parsed(home.config(host).stdout, path.suffix)
    assert shown.splitlines()[:3] == [
        f"--- {path}",
        f"+++ {path}",
        f"@@ -0,0 +1,{len(path.read_text().splitlines())} @@",
    ]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("host", FILES)
def test_writing_keeps_everything_else_shows_what_changes_and_keeps_the_older_file(host: str, home: Home) -> None:
    path = home.kept(host)
    before, text = content(path), path.read_text()
    table = TABLES.get(host, "mcpServers")
    shown = home.write(host, "--profile", "strict")
    after = content(path)
    entry = after[table].pop("llm-sandbox")
    assert after == before
    assert entry["args"] == ["--profile", "strict"]
    assert [line for line in shown.splitlines() if line.startswith("-") and not line.startswith("---")] in (
        [],
        ["-    }"],
    )
    assert "npx" in shown
    assert path.with_name(f"{path.name}.bak").read_text() == text


def test_writing_again_changes_nothing_and_older_copies_stay(home: Home) -> None:
    path = home.kept("cursor")
    first = path.read_text()
    home.write("cursor")
    second = path.read_text()
    assert home.write("cursor") == ""
    assert [file.name for file in sorted(path.parent.iterdir())] == ["mcp.json", "mcp.json.bak"]
    home.write("cursor", "--profile", "strict")
    home.write("cursor", "--profile", "generous")
    copies = [path.with_name(f"mcp.json.bak{number}").read_text() for number in ("", ".1", ".2")]
    assert copies[:2] == [first, second]
    assert "strict" in copies[2] and "generous" in path.read_text()


def test_a_link_stays_a_link_and_its_file_keeps_its_mode(home: Home) -> None:
    path = home.kept("cursor")
    file = home.folder / "dotfiles.json"
    path.rename(file)
    file.chmod(0o640)
    path.symlink_to(file)
    home.write("cursor")
    assert path.is_symlink()
    assert "llm-sandbox" in json.loads(file.read_text())["mcpServers"]
    copy = home.folder / "dotfiles.json.bak"
    assert [each.stat().st_mode & 0o777 for each in (file, copy)] == [0o640, 0o640]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"mcpServers": ', "Expecting value: line 1 column 16"),
        (b'{"mcpServers": 3}', "mcpServers is not a table of servers"),
        (b"\xff\xfe", "can't decode byte"),
    ],
)
def test_a_file_that_cannot_be_edited_is_an_error_and_stays_as_it_is(text: bytes, reason: str, home: Home) -> None:
    path = home.kept("cursor")
    path.write_bytes(text)
    done = home.config("cursor", "--write")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert str(path) in line and reason in line and "paste" in line
    assert path.read_bytes() == text
    assert len([*path.parent.iterdir()]) == 1


def test_another_file_can_be_named(home: Home) -> None:
    home.write("claude-code", "--file", str(home.folder / ".claude.json"))
    assert content(home.folder / ".claude.json")["mcpServers"]["llm-sandbox"]["type"] == "stdio"
    assert not [*(home.folder / "project").iterdir()]
    done = home.config("claude-code", "--file", "x.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "add --write" in done.stderr


def test_a_file_in_a_place_that_cannot_be_written_is_an_error(home: Home) -> None:
    done = home.config("cursor", "--write", "--file", "/proc/none/mcp.json")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "/proc/none/mcp.json cannot be written: " in line and "--file" in line


def test_folders_that_the_environment_names_are_used(home: Home) -> None:
    home.write("zed", XDG_CONFIG_HOME=str(home.folder / "xdg"))
    home.write("codex-cli", CODEX_HOME=str(home.folder / "codex"))
    assert content(home.folder / "xdg/zed/settings.json") and content(home.folder / "codex/config.toml")


def test_a_profile_is_carried_with_its_whole_path(home: Home) -> None:
    (home.folder / "project/mine.toml").write_text('[limits]\ntimeout = "2m"\n')
    home.write("goose", "--profile", "mine.toml")
    entry = content(home.folder / FILES["goose"])["extensions"]["llm-sandbox"]
    assert entry["args"] == ["--profile", os.fspath(home.folder / "project/mine.toml")]


def test_folders_are_carried_with_their_whole_paths(home: Home) -> None:
    for name in ("data", "out"):
        (home.folder / "project" / name).mkdir()
    home.write("zed", "--folder", "data", "--folder", "~/project/out:rw")
    entry = content(home.folder / FILES["zed"])["context_servers"]["llm-sandbox"]
    project = home.folder / "project"
    assert entry["args"] == ["--folder", f"{project}/data", "--folder", f"{project}/out:rw"]
    refused = home.config("zed", "--folder", "absent")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"llm-sandbox-mcp: --folder: {project}/absent is no folder; make it, or name another one\n"


def test_a_store_that_needs_variables_is_named_since_hosts_pass_on_none(home: Home) -> None:
    (home.folder / "project/mine.toml").write_text('[sessions]\nstore = "s3://bucket/some"\n')
    said = home.config("claude-desktop", "--profile", "mine.toml").stderr
    assert "\ns3://bucket/some: many hosts pass on none of their variables; add " in said
    assert "variables" not in home.config("claude-desktop").stderr
