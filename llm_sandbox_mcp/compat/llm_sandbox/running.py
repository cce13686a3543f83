"""The parts of blocking sessions: output as it appears, a lifetime, a fresh interpreter for each run."""

import logging
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import anyio

from ...aio.tasks import open_tasks
from ...base.errors import SandboxError
from ...base.results import Execution, OnOutput
from ...base.text import valid
from ...host.records import EscapingFormatter
from ...sandboxes import Printed, Sandboxes, Session
from ...service import Service
from ...service.ask import Options
from ...service.work import Listener
from .portal import portal
from .values import StreamCallback

_PAUSE = 0.001
"""Seconds of delay, so that the caller first gets the result of a run: only one Python thread runs at a time."""

_log = logging.getLogger("llm_sandbox_mcp")


@dataclass(frozen=True, slots=True)
class Cell:
    """A run of a program's code."""

    code: str
    language: str
    timeout: float
    variables: Mapping[str, object] | None = None
    wrap: Callable[[str], str] | None = None
    """Makes of the code, once the rules have judged it, what runs instead."""
    last: bool = False
    """Whether a refresh follows: the run includes what its interpreter does when it exits, as waiting for threads."""


class CellSession(Session):
    """A session that runs cells, with what only programs of LLM Sandbox need of a run."""

    async def run_cell(self, cell: Cell, on_output: OnOutput | None = None) -> Execution:
        """Runs a cell, as `run` does."""
        door = self._service.door
        options: Options = {"language": cell.language, "timeout": cell.timeout, "variables": cell.variables}
        checked = await door.check(self._ask(cell.code, options))
        request = checked.request
        assert request is not None  # there is code
        if cell.wrap is not None:
            whole = valid(cell.wrap(request.code))
            request = replace(request, code=whole, instead=None)
        request = replace(request, last=cell.last)
        await self._awake()
        return (await door.attend(replace(checked, request=request), Listener(on_output))).execution

    def stream_cell(self, cell: Cell) -> AsyncGenerator[Printed | Execution, None]:
        """Runs a cell, as `stream` does."""
        return self._follow(partial(self.run_cell, cell))


def follow(
    stream: AsyncGenerator[Printed | Execution, None], callbacks: Mapping[str, StreamCallback | None]
) -> Execution:
    """Calls the callbacks with the output of the code, in this thread, and returns the result of the run."""

    async def piece() -> Printed | Execution:
        return await anext(stream)

    try:
        while True:
            match portal.call(piece):
                case Execution() as done:
                    return done
                case Printed(name, text):
                    callback = callbacks[name]
                    if callback is not None:
                        callback(text)
    finally:
        portal.call(stream.aclose)


@asynccontextmanager
async def living(sandboxes: Sandboxes, language: str, lifetime: float | None) -> AsyncIterator[CellSession]:
    """A session that is closed at the end of the scope or of its lifetime, whichever comes first."""
    async with CellSession(sandboxes.service, language) as session, open_tasks() as tasks:

        async def expire(seconds: float) -> None:
            await anyio.sleep(seconds)
            await session.close()

        if lifetime is not None:
            tasks.start_soon(expire, lifetime)
        yield session
        tasks.cancel_scope.cancel()


async def exports(service: Service, session: Session) -> str:
    """Shell code after which commands find the programs and libraries of the session's language, as its code does."""
    own, of_shell = [await service.sessions.environment(session.id, name) for name in (session.language, "bash")]
    return "".join(f"export {name}={shlex.quote(own[name])}; " for name in own if own[name] != of_shell.get(name))


async def refresh(session: Session) -> None:
    with suppress(SandboxError):  # the next run reports the error
        await session.refresh(pause=_PAUSE)


def be_verbose() -> None:
    """Logs this package's messages to standard error, unless the program has already configured a handler."""
    _log.setLevel(logging.DEBUG)
    if all(isinstance(handler, logging.NullHandler) for handler in _log.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(EscapingFormatter("%(message)s"))
        _log.addHandler(handler)
