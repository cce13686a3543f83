"""Runs this package as a user who is not root, wherever the checkout is and whoever is allowed to read it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import cache_from_source
from os import PathLike
from pathlib import Path
from tempfile import NamedTemporaryFile

from packaging.requirements import Requirement

from llm_sandbox_mcp.host.folders import CONFIGS, HANDLERS

USER = 65534
LENT = range(300_000, 365_536)
"""Uids and gids that are lent to the user if a test wants it; otherwise there are none, whatever the machine allows."""
LIMIT = 100.0
_AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
_LENDING = """
mount --bind "$1" /etc/subuid && mount --bind "$1" /etc/subgid && shift || exit
if [ -c /dev/net/tun ]; then mount -t tmpfs tmpfs /dev/net && mknod -m 0666 /dev/net/tun c 10 200 || exit; fi
exec "$@"
"""
"""Run as root, in a separate mount namespace. It also lets everyone open /dev/net/tun, as most machines do."""
_PACKAGE = Path(__file__).parents[1] / "llm_sandbox_mcp"


class Impossible(Exception):
    """Such a user is not possible here; the message is the reason."""


def interpreter() -> str:
    """The system's Python: the Python that runs the tests may be in a folder that other users cannot read."""
    if os.geteuid() != 0:
        raise Impossible("only root can become another user")
    found = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin")
    if found is None:
        raise Impossible("the system's Python has another version than the one that runs the tests")
    return found


def install(folder: Path) -> None:
    """Copies this package and its dependencies to a folder that everyone can read."""
    for source in (_PACKAGE, CONFIGS, HANDLERS):
        copy = folder / _PACKAGE.name / ("" if source == _PACKAGE else source.name)
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"), copy_function=_copy)
    for package in _needed("llm-sandbox-mcp"):
        for file in package.files or ():
            # Without the hook of an editable install and its copied files. Programs are outside of the packages.
            if file.suffix not in (".pyc", ".pth") and file.parts[0] != _PACKAGE.name:
                copy = folder / (Path("bin", file.name) if ".." in file.parts else file)
                copy.parent.mkdir(parents=True, exist_ok=True)
                _copy(file.locate(), copy)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _copy(source: str | PathLike[str], copy: str | PathLike[str]) -> None:
    """Copies a file, and what Python compiled of a module: the user cannot keep that, and each process would compile it
    again, which takes as long as half of a short command."""
    shutil.copy2(source, copy)
    if os.fspath(source).endswith(".py"):
        compiled = Path(cache_from_source(os.fspath(source)))
        if compiled.exists():
            kept = Path(cache_from_source(os.fspath(copy)))
            kept.parent.mkdir(exist_ok=True)
            shutil.copy(compiled, kept)


def run(
    packages: Path,
    *argv: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    lent: bool = False,
    privileges: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter as the user, with the packages of a folder and a minimal environment extended by `env`.

    `lent` gives the user uids for sandboxes; `privileges` are further arguments of setpriv.
    """
    with _lending(lent) as lending:
        return subprocess.run(
            [*lending, *_AS_USER, *privileges, interpreter(), *argv],
            cwd=cwd or packages,
            env=_settings(packages, env),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )


@contextmanager
def started(
    packages: Path, *argv: str, cwd: Path, env: Mapping[str, str], lent: bool
) -> Iterator[subprocess.Popen[str]]:
    """Starts the same and yields the process, which has ended when the scope is left."""
    with (
        _lending(lent) as lending,
        subprocess.Popen(
            [*lending, *_AS_USER, interpreter(), *argv],
            cwd=cwd,
            env=_settings(packages, env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        yield process


@contextmanager
def _lending(lent: bool) -> Iterator[Sequence[str]]:
    """Yields the start of a command line that runs the rest with uids lent to the user, or with none."""
    with NamedTemporaryFile("w") as ranges:
        ranges.write(f"{USER}:{LENT.start}:{len(LENT)}\n" if lent else "")
        ranges.flush()
        os.chmod(ranges.name, 0o644)
        yield ["unshare", "--mount", "sh", "-c", _LENDING, "sh", ranges.name]


def _settings(packages: Path, env: Mapping[str, str] | None) -> Mapping[str, str]:
    settings = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**settings, **(env or {})}


def _needed(name: str) -> list[Distribution]:
    """A distribution and all distributions that it requires, without its extras."""
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop().lower()
        if name not in found:
            with suppress(PackageNotFoundError):  # only required on another system
                found[name] = distribution(name)
                requirements = map(Requirement, found[name].requires or ())
                waiting += [
                    required.name
                    for required in requirements
                    if required.marker is None or required.marker.evaluate({"extra": ""})
                ]
    return [*found.values()]
