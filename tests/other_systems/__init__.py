"""macOS and Windows, as far as they can be shown on Linux: the command runs without what they do not have.

`sitecustomize.py`, which each interpreter imports at its start, hides what only Linux has, and names the other system.
"""

import subprocess
import sys
from pathlib import Path

from tests.cli.command import ARGV, LIMIT, ROOT, environment

FOLDER = Path(__file__).parent


def environment_on(system: str, **changes: str) -> dict[str, str]:
    """The environment of interpreters as on another system, named as in `sys.platform`."""
    return environment(OTHER_SYSTEM=system, PYTHONPATH=f"{FOLDER}:{ROOT}", **changes)


def command_on(system: str, *arguments: str, cwd: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    """Runs `llm-sandbox-mcp` as on another system."""
    return subprocess.run(
        [*ARGV, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=cwd,
        check=False,
        env=environment_on(system, **changes),
    )


def hidden_on(system: str, expression: str) -> str:
    """What an expression of Python prints on another system."""
    done = subprocess.run(
        [sys.executable, "-c", f"import fcntl, os, select, sys; print({expression})"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment_on(system),
        check=False,
    )
    return (done.stdout or done.stderr.splitlines()[-1]).strip()
