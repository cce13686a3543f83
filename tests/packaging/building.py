"""Builds the packages of this checkout, and runs commands in which the checkout is not found by accident."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "configs" / "publish" / "build.py"
LIMIT = 300.0


def run(*argv: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints; it runs without PYTHONPATH, in a separate folder, and has to succeed."""
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(cwd)} | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def publish(part: str, into: Path, *options: str, **environment: str) -> list[Path]:
    """The files of one part of what `make dist` builds."""
    printed = run(sys.executable, BUILD, "--only", part, "--into", into, *options, cwd=into, **environment)
    return [Path(line) for line in printed.splitlines()]


def outside() -> dict[str, str]:
    """The environment of programs that download: this process's own settings for indexes, proxies and certificates."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
