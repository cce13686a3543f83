"""The small commands, and the behaviour that all commands share."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from llm_sandbox_mcp import __version__
from llm_sandbox_mcp.base.text import escape
from llm_sandbox_mcp.cli.console import table
from llm_sandbox_mcp.testing.profiles import plain_handlers

from .command import ARGV, LIMIT, called, command, environment, ran, refused

COMMANDS = (
    "serve",
    "run",
    "doctor",
    "languages",
    "profile show",
    "profile check",
    "images build",
    "images list",
    "images pull",
    "images remove",
    "sweep",
    "cache",
    "completion",
    "client-config",
)
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def test_the_version_is_that_of_the_package() -> None:
    assert command("--version").stdout == f"llm-sandbox-mcp {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_text(name: str) -> None:
    done = called(*name.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: llm-sandbox-mcp {name}")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("bogus",), "unknown 'bogus'; available: client-config, run, doctor, serve, "),
        (("serv",), "; did you mean 'serve'?; see llm-sandbox-mcp --help"),
        (
            ("profile", "sho"),
            "unknown 'sho'; available: show, check; did you mean 'show'?; see llm-sandbox-mcp profile ",
        ),
        (("--bogus",), "unrecognized arguments: --bogus"),
        (("serve", "--transport", "pigeon"), "--transport: unknown 'pigeon'; available: stdio, http, sse"),
        (("serve", "--port", "many"), "invalid int value: 'many'"),
        (("serve", "--transport", "http", "--port", "99999"), "port 99999: must be from 0 to 65535; choose another"),
        (("serve", "--transport", "http", "--host", "192.0.2.1"), "must be a loopback address"),
        (("serve", "--port", "99999"), "port 99999: must be from 0 to 65535; choose another"),
        (("--host", "192.0.2.1"), "must be a loopback address"),
        (("serve", "--port", "0", "--folder", "."), "only clients on stdio can use folders of this machine"),
        (
            ("serve", "--transport", "stdio", "--port", "0"),
            "--transport stdio listens nowhere; leave it out, or --host",
        ),
        (("languages", "--profile", "nope"), "unknown profile 'nope'"),
        (("client-config", "claude-dektop"), "did you mean 'claude-desktop'"),
        (("client-config", "emacs"), "unknown client 'emacs'; available: claude-code, claude-desktop, codex-cli, "),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line_with_status_two(arguments: tuple[str, ...], reason: str) -> None:
    assert reason in refused(*arguments)


def test_without_a_command_the_server_runs_until_its_input_ends() -> None:
    done = command(stdin=json.dumps(INITIALIZE) + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "llm-sandbox-mcp"


def test_languages_are_listed_with_their_names_and_libraries() -> None:
    done = called("languages")
    assert done.returncode == 0
    (python,) = [line for line in done.stdout.splitlines() if line.startswith("python ")]
    assert "py, python3" in python
    assert "numpy, pandas, matplotlib" in python


@pytest.mark.usefixtures("embedded")
def test_doctor_reports_that_code_can_run_and_in_which_languages() -> None:
    done = command("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("Code can run here.\n")
    assert all(f"\n{name} " in done.stdout for name in ("bubblewrap", "sandbox", "bash", "python", "uv", "cache"))


def test_doctor_names_what_is_missing_and_the_fix(tmp_path: Path) -> None:
    profile = tmp_path / "no.toml"
    profile.write_text('[embedded]\nbwrap = "no-such-program"\n')
    done = ran("doctor", "--profile", str(profile))
    assert (done.returncode, done.stderr) == (1, "")
    assert "no-such-program is not on PATH" in done.stdout
    assert "what fixes it:\n  bubblewrap: " in done.stdout
    assert done.stdout.endswith("Code cannot run here.\n")


@pytest.mark.usefixtures("embedded")
def test_doctor_names_a_language_without_its_programs_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent/handler.toml").write_text(
        'name = "absent"\ntitle = "Absent"\nextension = ".x"\nversion_command = ["no-such-program"]\nstateful = true\n'
        '[runner]\nargv = ["no-such-program"]\n'
        '[requires]\ncommands = ["no-such-program"]\ninstall = "apt-get install absent"\n'
    )
    profile = tmp_path / "own.toml"
    profile.write_text(f"[handlers]\nfolders = ['{tmp_path}']\n")
    done = ran("doctor", "--profile", str(profile))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\nabsent +missing +not below /usr, where sandboxes look: no-such-program\n", done.stdout)
    assert "\n  absent: apt-get install absent\n" in done.stdout
    assert re.search(r"\nbash +ok ", done.stdout)
    assert done.stdout.endswith("Code can run here.\n")
    done = ran("run", "--profile", str(profile), "--language", "bash", "-c", "echo on")
    assert (done.returncode, done.stdout) == (0, "on\n")
    said = refused("run", "--profile", str(profile), "--language", "absent", "-c", "1")
    assert "absent needs no-such-program, which /usr of this machine does not have; apt-get install absent" in said


@pytest.mark.usefixtures("embedded")
def test_doctor_says_what_warm_interpreters_import_and_what_not_and_why(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    handlers = plain_handlers(tmp_path / "handlers")

    def row(modules: Sequence[str], more: str = "") -> str:
        profile.write_text(f"[handlers]\nfolders = ['{handlers}']\n[languages.python]\npreload = {modules}\n{more}")
        done = ran("doctor", "--profile", str(profile))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("Code can run here.\n")
        return " ".join(line for line in done.stdout.splitlines() if line.startswith("python preload "))

    assert re.search(r"preload +ok +decimal: [\d.]+m?s and [\d.]+[KM]iB for each warm sandbox$", row(["decimal"]))
    found = row(["decimal", "this", "nothing_there"])
    assert re.search(r"preload +degraded +decimal: ", found)
    assert found.endswith("; without this: it prints when it is imported; without nothing_there: it is not installed")
    (handlers / "python/importlib_bootstrap/lib/keeper.py").write_text("kept = open('/etc/passwd')")
    found = row(["keeper"])
    assert re.search(r"preload +degraded +keeper: ", found)
    assert found.endswith("; sandboxes do not start with them: it keeps files open")
    assert row([]) == row(["decimal"], "[pool]\nmin = 0\n") == ""


@pytest.mark.usefixtures("embedded")
def test_doctor_opens_the_saved_session_from_which_those_of_a_language_start(tmp_path: Path) -> None:
    profile, program = tmp_path / "own.toml", tmp_path / "save.py"
    handlers = plain_handlers(tmp_path / "handlers")
    plain = f"[handlers]\nfolders = ['{handlers}']\n[sessions]\nstore = '{tmp_path}/saved'\n[pool]\nmin = 0\n"
    profile.write_text(plain)
    program.write_text(SAVE)
    subprocess.run([sys.executable, program, profile], check=True, timeout=LIMIT)

    def said(start: str) -> str:
        profile.write_text(f"{plain}[languages.bash]\nstart = '{start}'\n")
        done = ran("doctor", "--profile", str(profile))
        assert (done.returncode, done.stderr) == (0, "")
        assert "python start" not in done.stdout
        return done.stdout

    found = said("geo")
    assert re.search(r"\nbash start +ok +geo, opened in \d+ ms\n", found)
    assert "save it again" not in found
    cause = "sessions of bash start from a saved one, and that cannot be opened: no session is saved as 'absent'"
    found = said("absent")
    assert re.search(rf"\nbash start +missing +{cause}\n", found)
    assert (
        "\n  bash start: the operator can save one as 'absent' with a profile without languages.bash.start, or" in found
    )
    assert "start " not in said("")


def test_without_bubblewrap_nothing_runs(tmp_path: Path) -> None:
    profile = tmp_path / "no.toml"
    profile.write_text('[embedded]\nbwrap = "no-such-program"\n')
    assert "no-such-program is not on PATH" in refused(
        "run", "--profile", str(profile), "--language", "bash", "-c", "id"
    )


@pytest.mark.usefixtures("embedded")
def test_sweep_keeps_folders_of_live_servers_and_removes_those_of_killed_servers(tmp_path: Path) -> None:
    # Directly below /tmp, which the uids of sandboxes can enter; they cannot enter pytest's folders.
    runtime = Path("/tmp") / f"llm-sandbox-sweep-{os.getpid()}"
    profile = tmp_path / "own.toml"
    profile.write_text(f'[server]\nruntime = "{runtime}"\n')
    arguments = ("--profile", str(profile))
    try:
        with subprocess.Popen(
            [*ARGV, "run", *arguments, "--language", "bash", "-c", "echo on; sleep 1000"],
            stdout=subprocess.PIPE,
            env=environment(),
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"on\n"
            assert called("sweep", *arguments).returncode == 0
            assert len([*runtime.iterdir()]) == 1
            process.kill()
            process.wait(LIMIT)
        assert called("sweep", *arguments).returncode == 0
        assert not [*runtime.iterdir()]
    finally:
        runtime.rmdir()


def test_the_cache_for_later_installations_is_shown_and_cleared(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text(f'[server]\ncache = "{tmp_path}"\n[sessions]\nstore = "{tmp_path}/saved"\n')
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "wheel").write_bytes(bytes(4096))
    arguments = ("cache", "--profile", str(profile))
    shown = called(*arguments)
    assert shown.returncode == 0, shown.stderr
    assert [line.split() for line in shown.stdout.splitlines()[2:]] == [
        ["environments", "0", "0B", "20"],
        ["tools", "0", "0B", "2"],
        ["downloads", "1", "4KiB", "2GiB"],
        ["saved", "sessions:", "0", "of", "100,", "0B", "of", "10GiB"],
        ["sessions", "put", "aside:", "0", "of", "1000,", "0B", "of", "10GiB"],
    ]
    cleared = called(*arguments, "--clear")
    assert (cleared.returncode, cleared.stdout) == (0, f"removed 4KiB from {tmp_path}\n")
    assert not [*(tmp_path / "downloads").iterdir()]


def test_saved_sessions_are_listed_and_deleted(tmp_path: Path) -> None:
    profile, program = tmp_path / "own.toml", tmp_path / "save.py"
    profile.write_text(f'[sessions]\nstore = "{tmp_path}/saved"\n[pool]\nmin = 0\n')
    program.write_text(SAVE)
    subprocess.run([sys.executable, program, profile], check=True, timeout=LIMIT)
    arguments = ("sessions", "--profile", str(profile))
    shown = called(*arguments)
    assert (shown.returncode, shown.stderr) == (0, "")
    head, _, geo, other = shown.stdout.splitlines()
    assert head.split() == [f"{tmp_path}/saved", "age", "size", "variables", "files", "missing"]
    assert {geo.split()[0], other.split()[0]} == {"geo", "other"}
    assert re.search(r"\nsaved sessions +ok +2 of 100, ", called("doctor", "--profile", str(profile)).stdout)
    assert called(*arguments, "--delete", "geo", "--delete", "other").stdout == "deleted geo\ndeleted other\n"
    assert len(called(*arguments).stdout.splitlines()) == 2
    refused = called(*arguments, "--delete", "geo")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no session is saved as 'geo'" in refused.stderr


SAVE = """
import sys
import anyio
from llm_sandbox_mcp import Sandboxes

async def main():
    async with Sandboxes(sys.argv[1]) as sandboxes, sandboxes.session("bash") as session:
        await session.run("echo 1 > kept")
        await session.save("geo")
        await session.save("other")

anyio.run(main)
"""


def test_table_columns_are_as_wide_as_their_cells_and_control_characters_are_escaped() -> None:
    assert table(("a", "bb"), [("1", "2"), ("three", "\x1b[2J")]).splitlines() == [
        "a      bb",
        "-----  -------",
        "1      2",
        r"three  \x1b[2J",
    ]


def test_characters_that_move_the_cursor_or_reverse_text_are_escaped() -> None:
    assert escape("a\tb\n\x1b[31m\r\u202egnp\x9b") == "a\tb\n\\x1b[31m\\r\\u202egnp\\x9b"
