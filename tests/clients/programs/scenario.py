"""What each client does with the server, and what it shows of that; the same for all clients in Python.

The other modules in this folder say how each client does it. They are programs that run in the environment with their
client: they read a `Target` from their input, and write what the client has shown, both as JSON.
"""

import asyncio
import inspect
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

EXECUTE = "execute_code"
MANAGE = "manage_session"
LIMIT = 60.0
"""Seconds to wait for something that takes milliseconds."""

# As text, or in JSON: one client shows the structured content. Another one shows its own text of the whole result.
SESSION = r'session: (\w+)|"session_id": "(\w+)"'
RUN = r'run (\w+): running|"running": true.*"run_ids": \[(?:"\w+", )*"(\w+)"\]'
STATUS = r'status: (\w+)|"run": {.*"status": "(\w+)"'

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The server to connect to, and what to do there."""

    way: str
    """stdio, http or sse"""
    command: str
    """Starts the server on stdio."""
    url: str
    """The server over HTTP."""
    calls: Mapping[str, Mapping[str, Any]]
    """Arguments of `execute_code`, one call after the other, all in the session of the first."""
    endless: str
    """Code that prints a line, and then never ends."""
    printed: str
    """That line."""
    patience: float
    """Seconds after which the client gives up a call."""
    settles: Mapping[str, float]
    """Seconds to wait for the end of the run of a call that was cancelled, or given up."""

    @property
    def address(self) -> str:
        return f"{self.url}/{'sse' if self.way == 'sse' else 'mcp'}"


@dataclass
class Shown:
    """The result of one call, as the client gives it to a program."""

    text: str = ""
    images: list[str] = field(default_factory=list)
    """In base64."""
    failed: bool = False
    """Whether the client marks the result as an error."""
    raised: str = ""
    """The type of the exception that the client raises instead of returning a result; its message is the text."""


class Client(ABC):
    """A connected client."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._some = asyncio.Event()

    @abstractmethod
    async def tools(self) -> list[str]:
        """The names of the tools that the client lists."""

    @abstractmethod
    async def call(self, tool: str, arguments: dict[str, Any], limit: float | None) -> Shown:
        """Calls a tool; `limit`: seconds, for clients that have one for each call."""

    async def progressed(self, _progress: float, _total: float | None, message: str | None) -> None:
        """For clients that take a callback for progress."""
        self.messages.append(message or "")
        self._some.set()

    async def reported(self, text: str) -> None:
        """Waits until a message about progress contains a text."""
        while text not in "".join(self.messages):
            self._some.clear()
            await self._some.wait()


Connect = Callable[[Target], AbstractAsyncContextManager[Client]]


def run(connect: Connect, *, silent: Callable[..., object] | None = None) -> None:
    """Plays the scenario. `silent`: what would take a callback for progress if the client had one."""
    target = Target(**json.load(sys.stdin))
    reports = silent is None or any("progress" in name for name in inspect.signature(silent).parameters)
    json.dump(asyncio.run(_play(connect, target, silent is None)) | {"reports": reports}, sys.stdout)


async def _play(connect: Connect, target: Target, reports: bool) -> dict[str, Any]:
    async with connect(target) as client, _watching(connect, target, client) as watching:
        tools = await bounded(client.tools())
        results: dict[str, Shown] = {}
        session = ""
        for name, arguments in target.calls.items():
            results[name] = await shown(client, EXECUTE, **arguments, **({"session_id": session} if session else {}))
            session = session or found(SESSION, results[name].text)
        endless = _Endless(client, watching, target, session)
        cancelled = await endless.cancel(reports)
        given_up = await endless.give_up()
        after = await shown(client, EXECUTE, code="x", session_id=session)
        await shown(client, MANAGE, action="close", session_id=session)
        return {
            "tools": tools,
            "shown": {name: asdict(one) for name, one in results.items()},
            "messages": client.messages,
            "cancelled": cancelled,
            "given_up": given_up,
            "after": asdict(after),
        }


@asynccontextmanager
async def _watching(connect: Connect, target: Target, client: Client) -> AsyncIterator[Client]:
    """A client that looks on while a call takes long: some make the calls of one connection one after the other."""
    if target.way == "stdio":
        yield client
    else:
        async with connect(target) as other:
            yield other


class _Endless:
    """Calls that do not end by themselves."""

    def __init__(self, client: Client, watching: Client, target: Target, session: str) -> None:
        self._client = client
        self._watching = watching
        self._target = target
        self._session = session

    async def cancel(self, reports: bool) -> dict[str, str]:
        """Cancels the task that calls, while its code runs."""
        task = asyncio.create_task(self._call(None))
        run = await bounded(self._begun())
        if reports:
            await bounded(self._client.reported(self._target.printed))
        task.cancel()
        [ending] = await asyncio.gather(task, return_exceptions=True)
        return {"raised": type(ending).__name__, "run": await self._end(run, "cancelled")}

    async def give_up(self) -> dict[str, str]:
        """Lets the client wait until its own limit."""
        try:
            left = await bounded(self._call(self._target.patience))
        except Exception as error:
            left = Shown(text=str(error), failed=True, raised=type(error).__name__)
        run = await bounded(self._begun())
        return {"raised": left.raised, "text": left.text, "run": await self._end(run, "given_up")}

    async def _call(self, limit: float | None) -> Shown:
        arguments = {"code": self._target.endless, "session_id": self._session, "timeout_seconds": 300}
        return await self._client.call(EXECUTE, arguments, limit)

    async def _begun(self) -> str:
        """The id of the run, once its code runs."""
        while True:
            listed = await shown(self._watching, MANAGE, action="list", session_id=self._session)
            if match := re.search(RUN, listed.text):
                return str(match[1] or match[2])

    async def _end(self, run: str, how: str) -> str:
        """What the server says about the run of a call that its client left; then nothing of it runs any more."""
        waited = await shown(self._client, MANAGE, action="wait", run_id=run, wait_seconds=self._target.settles[how])
        status = found(STATUS, waited.text)
        if status == "running":
            await shown(self._client, MANAGE, action="cancel", run_id=run)
        return status


async def shown(client: Client, tool: str, **arguments: Any) -> Shown:
    """The result of a call; an exception is shown, too."""
    try:
        return await bounded(client.call(tool, arguments, None))
    except Exception as error:
        return Shown(text=str(error), failed=True, raised=type(error).__name__)


async def bounded(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, LIMIT)


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, text
    return str(match[1] or match[2])
