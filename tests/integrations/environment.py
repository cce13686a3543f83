"""A Python environment with the frameworks. The environment of the other tests does not need them and has none of them.

It is made once, from the dependencies in `pyproject.toml`, in a cache outside of the checkout.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uv import find_uv_bin

from ..engines.places import CACHE
from ..engines.requirement import absent

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"
GROUP = "integrations"
"""The dependency group of the frameworks; also their name in `SANDBOX_REQUIRE`."""

MAKING = 600.0
"""Seconds that making the environment can take if nothing has been downloaded before."""


def frameworks() -> Path:
    """The interpreter of that environment; without it, the test is skipped, or fails if the frameworks are required."""
    project = tomllib.loads(PROJECT.read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"][GROUP], sys.version]
    folder = CACHE / f"{GROUP}-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked():
        if not folder.is_dir():
            _make(folder)
    return folder / "bin" / "python"


@contextmanager
def _locked() -> Iterator[None]:
    # The kernel releases the lock when the process ends, in whatever way.
    with (CACHE / f"{GROUP}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(folder: Path) -> None:
    part = CACHE / f"{GROUP}-part"
    shutil.rmtree(part, ignore_errors=True)  # may remain from a process that was killed
    python = part / "bin" / "python"
    try:
        _uv("venv", "--relocatable", "--python", sys.executable, part)
        _uv("pip", "install", "--python", python, "--requirements", PROJECT, "--group", f"{PROJECT}:{GROUP}")
        part.rename(folder)
    except subprocess.CalledProcessError as error:
        absent(GROUP, " ".join(error.stderr.split())[-500:])
    except subprocess.TimeoutExpired:
        absent(GROUP, f"the frameworks could not be installed in {MAKING:g} s")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _uv(*arguments: str | Path) -> None:
    command = [find_uv_bin(), *arguments, "--quiet"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=MAKING)
