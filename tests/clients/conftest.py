"""A real server, and the programs of clients in the environments with their packages."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ..cli.command import environment, script
from ..engines import host_folder, need
from ..environments import NO_CACHE, npm, python_with
from ..mcp.serving import Server, start, stop
from .outside import NPM

PROFILE = """
[languages.python]
libraries = []

[server]
runtime = "{}"
"""

LIMIT = 180.0
"""Seconds after which a program counts as stuck."""

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="package")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A profile whose servers use a separate runtime folder, which must be empty at the end."""
    anyio.run(need, "embedded")
    with host_folder() as runtime:
        path = tmp_path_factory.mktemp("clients") / "profile.toml"
        path.write_text(PROFILE.format(runtime))
        yield path
        assert not [*runtime.iterdir()]


@pytest.fixture(scope="package")
def command(profile: Path) -> Path:
    """A `llm-sandbox-mcp` that uses the profile."""
    return script(profile.parent, profile)


@pytest.fixture(scope="package")
def server(profile: Path) -> Iterator[Server]:
    """One server over HTTP for all clients. Nothing that they do may make it print a traceback."""
    server = start(profile)
    yield server
    said = stop(server)
    assert "Traceback" not in said
    assert server.process.returncode == 0, said


@pytest.fixture(scope="package")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs in JavaScript, which look for packages in the folder that they are in."""
    folder = tmp_path_factory.mktemp("javascript")
    for name in NPM:
        (folder / name).mkdir()
        for program in PROGRAMS.glob("*.mjs"):
            shutil.copy(program, folder / name)
    return folder


Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="package")
def run(command: Path, javascript: Path) -> Run:
    """Runs a program in the environment of a client, its own or another one, and returns what it writes."""

    def run(outside: str, read: Mapping[str, Any], program: str = "") -> dict[str, Any]:
        if outside in NPM:
            packages = npm(f"client-{outside}", NPM[outside])
            modules = javascript / outside / "node_modules"
            if not modules.exists():
                modules.symlink_to(packages.modules)
            argv = [str(packages.node), str(modules.parent / f"{outside}.mjs")]
        else:
            python = python_with(f"client-{outside.replace('_', '-')}")
            argv = [str(python), "-m", f"{__package__}.programs.{program or outside}", outside]
        variables = environment(MCP_USE_ANONYMIZED_TELEMETRY="false", **NO_CACHE)
        done = subprocess.run(
            argv,
            input=json.dumps(read),
            env=variables | {"PATH": f"{command.parent}:{variables['PATH']}"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        written: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # one client logs there
        return written

    return run
