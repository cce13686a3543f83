"""A backend whose sandboxes are forks of processes that wait, for tests of these."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Check, Sandbox, Zygote
from llm_sandbox_mcp.backends.embedded.backend import EmbeddedBackend
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.runs.interpreter import start_interpreter
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.testing.profiles import host_folder, small_profile
from llm_sandbox_mcp.wiring import open_service
from tests.engines import need

LANGUAGES = load_languages()
PYTHON = Places(LANGUAGES["python"])
RUNNER = PYTHON.language.handler.runner
PATIENCE = 60
"""Seconds, ten times what the slowest of these waits takes."""


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    await need("embedded")
    with host_folder() as folder, anyio.fail_after(PATIENCE):
        yield folder


@asynccontextmanager
async def opened(folder: Path, **embedded: object) -> AsyncIterator[EmbeddedBackend]:
    async with open_service(profile(folder, **embedded)) as service:
        assert isinstance(service.backend, EmbeddedBackend)
        await service.backend.probe()
        yield service.backend


def profile(folder: Path, **embedded: object) -> Profile:
    return small_profile("embedded", folder, embedded=embedded)


def of_python(*modules: str) -> Zygote:
    assert RUNNER is not None
    return Zygote(tuple(PYTHON.argv(RUNNER.argv)), tuple(PYTHON.env(PATH).items()), modules)


async def row(backend: EmbeddedBackend, name: str = "zygotes") -> Check:
    return next(row for row in await backend.probe() if row.name == name)


async def value(sandbox: Sandbox, code: str) -> str:
    """What an expression is in a new interpreter of a sandbox."""
    interpreter = await start_interpreter(sandbox, PYTHON)
    outcome = await interpreter.run(RunRequest(code, timeout=20, output=10_000, grace=1), cell=1)
    assert outcome.report is not None and outcome.report.exit_code == 0, outcome
    return str(outcome.report.result)


async def settled(backend: EmbeddedBackend, zygote: Zygote) -> bool:
    """Whether sandboxes can be forks of a zygote, once that is known."""
    assert backend._zygotes is not None
    return await backend._zygotes.settled(zygote)


def waiting() -> list[int]:
    """The processes that wait to be forked, without the bubblewraps that have started them."""
    found, below = [], [os.getpid()]
    for pid in below:
        with suppress(FileNotFoundError, ProcessLookupError):
            those, started = children(pid), command(pid)
            found += those if "bwrap" in started and "/opt/zygote.py" in started else []
            below += those
    return found


def children(pid: int) -> list[int]:
    tasks = [*Path(f"/proc/{pid}/task").iterdir()]
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def launcher() -> int:
    """The process that starts all sandboxes."""
    (found,) = (pid for pid in children(os.getpid()) if "launcher" in command(pid))
    return found


def mapper() -> int:
    """The process that gives forks their uids and the files that they start with."""
    (found,) = (pid for pid in children(launcher()) if "launcher" in command(pid))
    return found
