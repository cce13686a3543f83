"""Servers that keep sessions, and what happens to a session there."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from llm_sandbox_mcp import Profile
from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import UnknownState
from llm_sandbox_mcp.base.principal import USER
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.state.opening import kept_sessions
from llm_sandbox_mcp.testing.profiles import changed
from llm_sandbox_mcp.wiring import open_service
from tests.engines import cluster

from ..containers.engines import address, client, until

LIMIT = 120
"""Seconds for one test; its longest waits are for a pod."""


@asynccontextmanager
async def serving(profile: Profile, **sessions: object) -> AsyncIterator[Service]:
    """A server, which ends with the scope as one that is asked to end."""
    with anyio.fail_after(LIMIT):
        async with open_service(changed(profile, sessions=sessions)) as service:
            yield service


async def put_aside(service: Service, session_id: str) -> None:
    """Waits until a session is no longer live."""
    await until(lambda: not service.sessions.is_open(session_id), LIMIT)


async def saved(profile: Profile, session_id: str, runs: int) -> None:
    """Waits until a session is saved as it is after so many runs."""
    kept = kept_sessions(profile.sessions, Path(profile.sessions.store))
    while True:
        try:
            async with kept.reading(USER, session_id) as (reader, _):
                if reader.manifest.runs >= runs:
                    return
        except UnknownState:
            pass
        await anyio.sleep(0.01)


async def lose_sandbox(service: Service, session_id: str) -> None:
    """Ends the sandbox of a session, which knows no reason."""
    sandbox = await sandbox_of(service, session_id)
    await sandbox.kill()
    await until(lambda: not sandbox.alive, LIMIT)


async def end_from_outside(service: Service, session_id: str, backend: str) -> None:
    """Ends the sandbox of a session as somebody else does, with the means of its engine."""
    sandbox = await sandbox_of(service, session_id)
    if backend == "embedded":
        space = (await sandbox.run(["readlink", "/proc/self/ns/pid"], {"PATH": PATH})).stdout.decode().strip()
        await anyio.to_thread.run_sync(_kill_in, space)
    elif backend == "kubernetes":
        await anyio.to_thread.run_sync(cluster().delete_namespaced_pod, sandbox.id, "default")
    else:
        with closing(client(address(backend))) as engine:
            await anyio.to_thread.run_sync(engine.kill, sandbox.id)
    await until(lambda: not sandbox.alive, LIMIT)


async def sandbox_of(service: Service, session_id: str) -> Sandbox:
    """The sandbox of a live session."""
    return await service.keeping._live.get(session_id).sandbox()


def _kill_in(space: str) -> None:
    """Kills all processes in a namespace of processes."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is gone, or somebody else's
            if os.readlink(place / "ns/pid") == space:
                os.kill(int(place.name), signal.SIGKILL)


def notes(run: Execution, code: str) -> list[str]:
    return [note for note in run.notes if note.code == code]
