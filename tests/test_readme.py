"""The commands, profiles and programs of the README and the pages work; `unit/test_documents.py` checks all documents."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from llm_sandbox_mcp.base.results import Status
from llm_sandbox_mcp.host.folders import HANDLERS
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.profile.sections import ArtifactLimits, Limits

from .cli.command import LIMIT, ROOT, as_typed, called, environment
from .documents import DOCUMENTS, GUIDE, OTHER_TABLES, blocks, lines
from .engines import host_folder
from .mcp.serving import start, stop
from .promises import TABLE

README = DOCUMENTS["README.md"]
BLOCKS = [block for document in GUIDE for block in blocks(document)]

LINES = sorted({line.removeprefix("uvx ") for document in GUIDE for line in lines(document)})
COMMANDS = [line for line in LINES if line.startswith("llm-sandbox-mcp")]

ONLY_PARSED = ("--transport http", "--library", "--profile docker")
"""Commands that run until they are stopped, or need a package index or an engine: they are not run."""

CURL = [line for line in LINES if line.startswith("curl ")]

PROFILES = [text for kind, text in BLOCKS if kind == "toml" and not tomllib.loads(text).keys() & OTHER_TABLES]


def block(kind: str, part: str = "") -> str:
    (found,) = [text for name, text in BLOCKS if name == kind and part in text]
    return str(found)


def with_paths_of(folder: Path, profile: str) -> str:
    """The profile with folders and files that exist, in place of those of the reader's machine."""
    (folder / "token").write_text("0123456789abcdef")
    (folder / "key").write_text("0123456789abcdef" * 4)
    for name in ("data", "out"):
        (folder / name).mkdir()
    (folder / "languages").symlink_to(HANDLERS)
    for named, made in (("models-token", "token"), ("sessions.key", "key")):
        profile = profile.replace(f"/etc/llm-sandbox-mcp/{named}", f"{folder}/{made}")
    return profile.replace("~", str(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the commands use."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "mine.toml").write_text(with_paths_of(tmp_path, block("toml", "[files]")))
    return tmp_path


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("line", [line for line in COMMANDS if not any(part in line for part in ONLY_PARSED)])
def test_a_command_runs(line: str, folder: Path) -> None:
    arguments = [part.replace("~", str(folder)) for part in shlex.split(line)[1:]]
    done = as_typed(*arguments, cwd=folder)
    assert done.returncode == 0, done


def test_every_other_command_is_a_make_target_or_an_installation() -> None:
    installations = ("pip install llm-sandbox-mcp", "pip install 'llm-sandbox-mcp[docker]'")
    others = [line for line in LINES if line not in (*COMMANDS, *CURL, *installations)]
    assert [line for line in others if not line.startswith("make ")] == []


def test_the_commands_of_ci_are_in_the_documents() -> None:
    called = re.findall(r"^stage \d+ (make [\w-]+)$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    assert called == ["make lint", "make test", "make engines", "make test-engines"]
    assert [name for name in called if f"`{name}`" not in DOCUMENTS["CONTRIBUTING.md"]] == []


def test_the_readme_is_for_five_minutes() -> None:
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name != "CHANGELOG.md"])
def test_no_other_document_is_longer_than_a_page(document: str) -> None:
    assert len(DOCUMENTS[document].splitlines()) <= 250


def test_the_readme_names_layers_of_the_whole_table() -> None:
    (table,) = re.findall(r"^\| layer \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    named = {line.strip("| ").partition(" | ")[0] for line in table.splitlines()}
    assert len(named) > 10 and named <= TABLE.keys()


def test_the_entry_for_claude_desktop_is_what_the_command_prints() -> None:
    printed = json.loads(called("client-config", "claude-desktop").stdout)
    shown = json.loads(block("json"))
    for entry in (printed, shown):
        entry["mcpServers"]["llm-sandbox"].update(command="", args=[])
    assert shown == printed


@pytest.mark.parametrize("profile", PROFILES, ids=[profile.partition("\n")[0] for profile in PROFILES])
def test_a_profile_passes_the_check(profile: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(with_paths_of(tmp_path, profile))
    checked = called("profile", "check", str(tmp_path / "mine.toml"))
    assert checked.returncode == 0, checked
    assert tomllib.loads(profile)


@pytest.mark.usefixtures("embedded")
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_commands_are_answered(folder: Path) -> None:
    own = folder / "http.toml"
    with host_folder() as runtime:
        own.write_text(f'[server]\nruntime = "{runtime}"\n{block("toml", "execute_code")}')
        server = start(own)
        try:
            answers = [
                subprocess.run(
                    [*shlex.split(line.replace("http://127.0.0.1:8000", server.url)), "--silent", "--fail-with-body"],
                    capture_output=True,
                    text=True,
                    timeout=LIMIT,
                    cwd=folder,
                    check=True,
                ).stdout
                for line in CURL
            ]
        finally:
            stop(server)
    uploaded, ran = map(json.loads, answers)
    assert (ran["result"], ran["success"]) == ({"x": 10, "y": 2, "out": 12}, True)
    assert uploaded["path"] == "birds.csv"


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize(
    ("part", "printed"),
    [
        ("Printed", "21\ndone\n"),
        ("6 * 7", "42\n"),
        ("session.branch(", "{'python': 2} ()\n3\n1\n"),
        ("SandboxSession(", "hello\n"),
    ],
)
def test_a_program_runs(part: str, printed: str, tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text(f'[sessions]\nstore = "{tmp_path}/saved"\n')
    done = subprocess.run(
        [sys.executable, "-c", block("python", part)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**environment(), "LLM_SANDBOX_PROFILE": str(profile)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed), done


def limits() -> list[tuple[str, list[str], str]]:
    """The rows of the table of limits: the limit, its keys in the profile, what a run or call that reaches it gets."""
    page = DOCUMENTS["docs/pages/limits-and-isolation.md"]
    (table,) = re.findall(r"^\| limit \| key in the profile \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = []
    for line in table.splitlines():
        limit, keys, gets = line.strip("| ").split(" | ")
        found = re.findall(r"`([^`]+)`", keys)
        section = found[0].partition(".")[0] if found else ""
        rows.append((limit, [section + key if key.startswith(".") else key for key in found], gets))
    return rows


def test_the_table_contains_exactly_the_limits_of_the_profile() -> None:
    named = {key for _, keys, _ in limits() for key in keys}
    sections = load_profile()
    for key in named:
        section, _, name = key.partition(".")
        assert name in type(getattr(sections, section)).model_fields, key
    assert {f"limits.{name}" for name in Limits.model_fields} <= named
    assert {f"artifacts.{name}" for name in ArtifactLimits.model_fields} <= named
    assert {"sessions.max", "sessions.starts_per_second", "pool.max"} <= named


def test_the_table_contains_exactly_the_statuses_of_limits() -> None:
    of_limits = {*get_args(Status)} - {"ok", "error", "cancelled"}
    named = {word for _, keys, gets in limits() if keys for word in re.findall(r"`([a-z_]+)`", gets)}
    assert named == of_limits
