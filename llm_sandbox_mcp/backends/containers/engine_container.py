"""A container of an engine: each process is prepared by a control call, and has its own raw stream."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from ...base.errors import SandboxError
from ...base.messages import Problem
from .container import Container, lost_sandbox
from .engine import Engine
from .streams import Attached, Connection, Refused, upgrade

T = TypeVar("T")

_EXIT_SECONDS = 30.0
"""How long to wait for the exit code, which can arrive later than the end of the streams."""
_LONGEST_PAUSE = 0.25


class EngineContainer(Container):
    """One container of one engine, which is called in worker threads."""

    def __init__(self, engine: Engine, container: str, user: str, threads: anyio.CapacityLimiter) -> None:
        self.id = container
        self.engine = engine.name
        self._engine = engine
        self._user = user
        self._threads = threads

    async def start(self, argv: Sequence[str], *, closes_input: bool) -> Attached:
        name, connection = await self._in_thread(lambda: start(self._engine, self.id, argv, self._user))
        return Attached(connection, partial(self._exit_code, name))

    async def remove(self) -> None:
        await self._in_thread(lambda: self._engine.remove(self.id))

    async def silence(self) -> Problem | None:
        return await self._engine.silence()

    async def _exit_code(self, process: str) -> int | None:
        with anyio.move_on_after(_EXIT_SECONDS), contextlib.suppress(SandboxError):
            pause = 0.002
            while True:
                code = await self._in_thread(lambda: self._engine.exit_code(process))
                if code is not None:
                    return code
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return None

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._threads)


def start(engine: Engine, container: str, argv: Sequence[str], user: str) -> tuple[str, Connection]:
    """Starts a process and returns its id and its streams; blocks."""
    name = engine.prepare(container, argv, "/", user)
    try:
        return name, upgrade(engine.connect(), engine.exec_path(name), {"Detach": False, "Tty": False})
    except Refused as error:
        if error.gone:
            raise lost_sandbox() from error
        raise engine.refused("starting a process in a container", str(error), "open a new session") from error
