"""Runs the command in its own process, as people start it, or in the process of the test, which is a second faster."""

import contextlib
import io
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from llm_sandbox_mcp import cli

ROOT = Path(__file__).parents[2]
LIMIT = 300.0
"""Seconds after which a command counts as stuck; the first command on a machine prepares Python's libraries."""

ARGV = (sys.executable, "-m", "llm_sandbox_mcp")


def environment(**changes: str) -> dict[str, str]:
    """The environment for a command: that of this process, without the variable that chooses a profile."""
    kept = {key: value for key, value in os.environ.items() if key != "LLM_SANDBOX_PROFILE"}
    return kept | {"PYTHONPATH": str(ROOT)} | changes


def command(
    *arguments: str, stdin: str = "", cwd: Path | None = None, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Runs `llm-sandbox-mcp` and waits until it ends."""
    return subprocess.run(
        [*ARGV, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=cwd,
        env=environment(**changes),
        check=False,
    )


def called(*arguments: str, cwd: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    """Runs `llm-sandbox-mcp` in this process: for commands that only read, write and print."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    environ = environment(**changes)
    with (
        mock.patch.dict(os.environ, environ, clear=True),
        contextlib.chdir(cwd or "."),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        try:
            code = cli.main(arguments, environ)
        except SystemExit as ended:
            code = int(ended.code or 0)
    out, err = (stream.buffer.getvalue().decode() for stream in streams)
    return subprocess.CompletedProcess(arguments, code, out, err)


def ran(*arguments: str, cwd: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    """Runs `llm-sandbox-mcp` in this process, which has the descriptors of files for its output meanwhile."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, contextlib.ExitStack() as kept:
        for number, file in ((1, out), (2, err)):
            own = os.dup(number)
            kept.callback(os.close, own)
            kept.callback(os.dup2, own, number)
            os.dup2(file.fileno(), number)
        with kept:
            done = called(*arguments, cwd=cwd, **changes)
        written = []
        for file, text in ((out, done.stdout), (err, done.stderr)):
            file.seek(0)
            written.append(file.read().decode() + text)
    return subprocess.CompletedProcess(arguments, done.returncode, *written)


def as_typed(*arguments: str, cwd: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    """Runs what a document says to type: a server, which takes its standard input, as a process, and others in this one."""
    serves = not arguments or arguments[0] == "serve"
    return (command if serves else ran)(*arguments, cwd=cwd, **changes)


def refused(*arguments: str) -> str:
    """The one line on stderr with which a command is refused."""
    done = called(*arguments)
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def script(folder: Path, profile: Path) -> Path:
    """Makes a `llm-sandbox-mcp` that serves with a profile, for clients that do not pass on the environment."""
    path = folder / "llm-sandbox-mcp"
    words = shlex.join([*ARGV, "serve", "--profile", str(profile)])
    path.write_text(f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {words}\n")
    path.chmod(0o755)
    return path
