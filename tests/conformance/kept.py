"""Servers that keep sessions, and what happens to a session there."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from llm_sandbox_mcp import Profile
from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import SandboxError, UnknownSession, UnknownState
from llm_sandbox_mcp.base.principal import USER
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.cli.toml import as_toml
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.state.opening import kept_sessions
from llm_sandbox_mcp.testing.asking import execute, session_of
from llm_sandbox_mcp.testing.profiles import changed
from llm_sandbox_mcp.wiring import open_service
from tests.engines import cluster
from tests.mcp.hosts import Host, host
from tests.mcp.results import answer

from ..containers.engines import address, client, until

LIMIT = 120
"""Seconds for one test; its longest waits are for a pod."""
KEPT: Mapping[str, Mapping[str, object]] = {"lost": {"keep": False}, "kept": {"keep": True, "checkpoint": "run"}}
"""The two profiles under which sandboxes are lost in tests of engines."""
BUSY = "x = 9\nprint('on', flush=True)\nwhile True: pass"


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
    kept = kept_sessions(profile, Path(profile.sessions.store))
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
    await noticed(sandbox)


async def end_from_outside(service: Service, session_id: str, backend: str) -> None:
    """Ends the sandbox of a session as somebody else does, with the means of its engine."""
    sandbox = await sandbox_of(service, session_id)
    if backend == "embedded":
        space = (await sandbox.run(["readlink", "/proc/self/ns/pid"], {"PATH": PATH})).stdout.decode().strip()
        await anyio.to_thread.run_sync(_kill_in, space)
    elif backend == "kubernetes":
        with cluster().api_client:  # a later request opens another connection
            await anyio.to_thread.run_sync(cluster().delete_namespaced_pod, sandbox.id, "default")
    else:
        with closing(client(address(backend))) as engine:
            await anyio.to_thread.run_sync(engine.kill, sandbox.id)
    await noticed(sandbox)


async def noticed(sandbox: Sandbox) -> None:
    """Waits until the server knows that a sandbox has ended."""
    with anyio.fail_after(LIMIT):
        while sandbox.alive:  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(0.02)


async def sandbox_of(service: Service, session_id: str) -> Sandbox:
    """The sandbox of a live session."""
    return await (await session_of(service, session_id)).sandbox()


def _kill_in(space: str) -> None:
    """Kills all processes in a namespace of processes."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is gone, or somebody else's
            if os.readlink(place / "ns/pid") == space:
                os.kill(int(place.name), signal.SIGKILL)


def notes(run: Execution, code: str) -> list[str]:
    return [note for note in run.notes if note.code == code]


RUN = """
import os
x = {0}
with open("f", "w") as file:
    file.write("{0}")
"""
LOOK = """
import os
print(globals().get("x"), open("f").read() if os.path.exists("f") else None)
"""


class Subject:
    """A session to which something happens, and the server that has it."""

    def __init__(self, profile: Profile, backend: str) -> None:
        self.profile = profile
        self.backend = backend
        self.id = ""
        self.runs = 0
        self.last = 0
        """The last run that left its number."""
        self.said: list[str] = []
        """The notes of the run in which it happened."""
        self.host: Host | None = None
        self.service: Service
        self._server = AsyncExitStack()
        self._tasks: TaskGroup

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """A scope at whose end no server runs."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                await self._server.aclose()

    async def start(self, *, process: bool = False) -> None:
        """Starts a server in this process, or in one of its own."""
        if process:
            file = Path(self.profile.server.runtime).with_name("profile.toml")
            # This Python is the system's own, for which no libraries are prepared.
            file.write_text(as_toml(self.profile.model_copy(update={"languages": {"python": LanguageSection()}})))
            self.host = await self._server.enter_async_context(host(file, "2026-07-28"))
        else:
            self.service = await self._server.enter_async_context(serving(self.profile))

    async def end(self) -> None:
        """Ends the server as one that is replaced."""
        await self._server.aclose()
        self.host = None

    async def do(self, code: str, **options: Any) -> tuple[str, list[str]]:
        """A run in the session: what it printed, and its notes."""
        self.runs += 1
        if self.host is not None:
            named = {"session_id": self.id} if self.id else {}
            ran = await answer(self.host.client, "execute_code", code=code, **named, **options)
            self.id = ran["session_id"]
            return ran["stdout"], ran["notes"]
        execution = await execute(self.service, code, session_id=self.id, **options)
        self.id = execution.session_id
        return execution.stdout.text, list(execution.notes)

    async def work(self, more: str = "", **options: Any) -> None:
        """A run that leaves its number in a variable and in a file, and is saved if the profile saves runs."""
        self.last = self.runs + 1
        _, notes = await self.do(RUN.format(self.last) + more, **options)
        assert not [note for note in notes if "fresh" in note], notes
        if self.profile.sessions.checkpoint == "run":
            await saved(self.profile, self.id, self.runs)

    async def found(self) -> tuple[str, str]:
        """What the next call finds, and what it is told."""
        try:
            printed, notes = await self.do(LOOK)
        except UnknownSession as error:
            return "None None", str(error)
        return printed.strip(), "\n".join([*self.said, *notes])

    async def begin(self, code: str) -> None:
        """Has code run, however its run ends; it has printed something when this returns."""
        began = anyio.Event()

        async def heard(_stream: str, _text: str) -> None:
            began.set()

        async def run() -> None:
            with suppress(SandboxError):
                await execute(self.service, code, session_id=self.id, on_output=heard)

        self._tasks.start_soon(run)
        await began.wait()


async def goes_on(subject: Subject, why: str = "") -> None:
    """The next call finds what was saved last, or that all is lost, and says why; the one after that says nothing."""
    with anyio.fail_after(LIMIT):
        found, told = await subject.found()
        assert why in told, told
        if subject.profile.sessions.keep:
            assert found == "2 2", told
            assert "after run 2, " in told
            assert told.count("; what came after that is lost") == 1, told
        else:
            assert found == "None None", told
            assert told.startswith("started fresh: since an earlier run "), told
            assert told.endswith("; variables and files are lost"), told
        assert (await subject.found())[1] == ""
