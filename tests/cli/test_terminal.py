"""What a person sees who starts the server in a terminal, with no client."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.engines import host_folder

from .command import ARGV, LIMIT, refused
from .terminals import CTRL_C, CTRL_D, in_a_terminal
from .test_commands import INITIALIZE

PROFILE = """
[server]
runtime = "{folder}/runtime"
cache = "{folder}/cache"
[pool]
min = 0
[languages.python]
libraries = []
"""


class Terminal:
    """A server in a terminal, its output and its errors."""

    def __init__(self, keyboard: int, process: subprocess.Popen[bytes], out: IO[bytes], errors: IO[bytes]) -> None:
        self._keyboard = keyboard
        self._process = process
        self._out = out
        self._errors = errors

    def type(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def line(self) -> str:
        """The next line on stderr."""
        return self._errors.readline().decode()

    def await_ready(self) -> None:
        """Returns once the server answers."""
        self.type(json.dumps(INITIALIZE).encode() + b"\n")
        assert json.loads(self._out.readline())["id"] == INITIALIZE["id"]

    def ended(self) -> tuple[int, str]:
        """Waits for the end; returns the exit status and the rest of stderr."""
        return self._process.wait(LIMIT), self._errors.read().decode()


@pytest.fixture
def profile(tmp_path: Path) -> Iterator[Path]:
    with host_folder() as folder:
        path = tmp_path / "own.toml"
        path.write_text(PROFILE.format(folder=folder))
        yield path


@contextmanager
def terminal(profile: Path) -> Iterator[Terminal]:
    argv = [*ARGV, "--profile", str(profile)]
    with in_a_terminal(argv, subprocess.PIPE) as (keyboard, process):
        assert process.stdout is not None and process.stderr is not None
        yield Terminal(keyboard, process, process.stdout, process.stderr)


def test_two_lines_say_what_it_waits_for_and_what_to_run_instead(profile: Path) -> None:
    with terminal(profile) as server:
        waits, instead = server.line(), server.line()
        assert "waits for an MCP client on standard input" in waits and "Ctrl-C ends it" in waits
        assert all(f"llm-sandbox-mcp {name}" in instead for name in ("client-config", "run -c", "doctor"))
        server.await_ready()
        server.type(CTRL_C)
        assert server.ended() == (0, "")


def test_ctrl_c_before_the_server_is_ready_ends_it_without_a_word(profile: Path) -> None:
    with terminal(profile) as server:
        server.line(), server.line()
        server.type(CTRL_C)
        status, rest = server.ended()
        assert status in (0, 130)  # by now it can be ready
        assert rest == ""


def test_ctrl_d_ends_the_server(profile: Path) -> None:
    with terminal(profile) as server:
        server.line(), server.line()
        server.type(CTRL_D)
        assert server.ended() == (0, "")


def test_a_typed_line_that_is_no_message_is_explained_and_an_empty_line_is_not(profile: Path) -> None:
    with terminal(profile) as server:
        server.line(), server.line()
        server.type(b"\nprint(6 * 7)\n")
        assert "not a message of MCP" in server.line()
        server.await_ready()
        server.type(CTRL_D)
        assert server.ended() == (0, "")


def test_a_mistake_in_the_profile_is_the_only_line(tmp_path: Path) -> None:
    with terminal(tmp_path / "absent.toml") as server:
        assert server.ended() == (2, f"{refused('--profile', str(tmp_path / 'absent.toml'))}\n")
