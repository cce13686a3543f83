"""A running container: the engine starts processes in it, and its agent does the rest."""

import contextlib
import os
import re
import shlex
import signal
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from ...aio.tasks import open_tasks
from ...base.errors import EngineUnavailable, StartFailed, Unavailable
from ...base.messages import Problem
from ...base.policy import Policy
from ..base import OWN_ENTRIES, Fullness, Process, Sandbox, Usage
from ..copying import in_time
from ..layout import HOME, WORKDIR
from ..listening import Listener, listen_on
from ..listing import LIST, LIST_OUTSIDE, MISSING, Files, kept_outside, read_list
from .agent import Packed
from .container import Container, Streams, lost_sandbox
from .conversation import ANSWER, Conversation
from .outside import Outside
from .process import ContainerProcess, environment, search_path, starter
from .relay import open_relay

FOLDERS = (WORKDIR, HOME, "/tmp")
"""The folders that code can write, in every container."""

_START = 60.0
"""Seconds from the container's start to its agent's first line."""
_STARTED = 30.0
"""Seconds for a process to print its id; code of the same user can stop it before it does."""
_STUCK = 20.0
"""Seconds for the engine to start a process, which takes a tenth of one."""
_LISTING = 10.0
_SEARCHING = 30.0
"""Seconds for slower commands: listing all files, and searching for programs in an image's own environment."""
_ABANDONED = 5.0
"""Seconds to find out the id of a process whose start was abandoned, so that it can be killed."""
_ENDING = 2.5
"""Seconds within which a container ends after all its processes were killed."""
_EVERYTHING = 1
"""The "group" of a signal to all processes but the first one and the agent: the agent negates it."""


_FULL = f"stat -f -c '%a %c %d' {' '.join(FOLDERS)}; find {' '.join(FOLDERS)} -type f -size +{{}}c -print -quit"
"""Prints a line for each folder: free blocks, all inodes, free inodes; then the path of a file that is too large."""
_STATE = re.compile(rb"^(\d{1,20}) (\d{1,20}) (\d{1,20})$", re.MULTILINE)


def read_fullness(output: bytes) -> Fullness:
    """Reads the output of `_FULL`. Only lines in its form count: code of the same user can write to the output too."""
    counts = [[int(word) for word in found] for found in _STATE.findall(output)]
    # If a file system has no inodes at all, as in gVisor, entries are not counted.
    return Fullness(
        disk=any(left == 0 for left, _, _ in counts),
        entries=max((all_ - left - OWN_ENTRIES for _, all_, left in counts), default=0),
        large=any(line.startswith(b"/") for line in output.splitlines()),
    )


class ContainerSandbox(Sandbox):
    """One container, from its agent's first line to its removal."""

    def __init__(
        self,
        container: Container,
        agent: Streams,
        policy: Policy,
        image: str,
        *,
        prefix: Sequence[str],
        joined: bool = False,
    ) -> None:
        self.id = container.id
        self.policy = policy
        self.image = image
        self._container = container
        self._agent = Conversation(agent)
        self._prefix = prefix
        self._joined = joined
        self.outside: Outside | None = None
        """The view from this machine, if there is one; set before any code runs."""
        self.leaving = False
        """Whether its user has left it, so that it will be gone soon."""
        self.begun = False
        """Whether its agent accepts requests; before that, it reads all input as the handlers."""
        self._last = Usage()
        self._killed = False
        self.processes: set[ContainerProcess] = set()
        """The processes that have not been closed."""

    @property
    def origin(self) -> str:
        return f"{'' if self._joined else 'image '}{self.image} on {self._container.engine}"

    async def begin(self, handlers: Packed) -> None:
        """Gives the agent the handlers and waits until the container is ready; raises `StartFailed` with the cause."""
        answer = ""
        with anyio.move_on_after(_START) as deadline:
            answer = await self._agent.introduce(handlers)
        if deadline.cancelled_caught:
            raise await self._unanswered(
                StartFailed(
                    f"a container of {self.origin} did not start in {_START:g} s",
                    "check whether its machine is overloaded",
                )
            )
        if answer == "stuck":
            raise StartFailed(
                f"template {self.image} cannot be unpacked on {self._container.engine}: it does not fit into the "
                "sandbox's folders, or is damaged",
                "raise limits.disk and limits.memory in the profile",
            )
        if answer.startswith("missing "):
            raise self._unfit(f"has no {answer.removeprefix('missing ')}")
        word, _, path = answer.partition(" ")
        if word != "ready":
            raise await self.ended_at_once()
        self.path = search_path(path)
        self.begun = True

    async def ended_at_once(self) -> Unavailable:
        """The error for a container that ended before it could be used."""
        return self._unfit("ended at once")

    def _unfit(self, why: str) -> StartFailed:
        return StartFailed(
            f"a container of {self.origin} {why}",
            "use an image with sh, tar, gzip and GNU find, or make one: llm-sandbox-mcp images build",
        )

    @property
    def alive(self) -> bool:
        return not self._killed and not self._agent.ended

    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, *, closes_input: bool = False
    ) -> Process:
        command = starter(argv, env, cwd, self._prefix)
        program = (*self._prefix, *argv)[0]
        if not self.alive:
            raise lost_sandbox()
        with anyio.CancelScope(shield=True):
            # Shielded: a start that is cancelled half way would leave an unknown process.
            async with open_tasks() as tasks:
                tasks.start_soon(self._end_if_stuck, _STUCK)
                process = ContainerProcess(self, await self._container.start(command, closes_input=closes_input))
                tasks.cancel_scope.cancel()
        if self._killed:
            # The process came too late to be closed with the others.
            process.close()
            raise lost_sandbox()
        self.processes.add(process)
        try:
            with anyio.move_on_after(_STARTED) as deadline:
                await process.started(program)
            if deadline.cancelled_caught:
                raise await self._unanswered(
                    StartFailed(
                        f"{program} did not start within {_STARTED:g} s",
                        "stop the code that runs in the session, or reset the session",
                    )
                )
        except BaseException:
            if process in self.processes:  # it may run, although its id is not known yet
                with anyio.CancelScope(shield=True):
                    with anyio.move_on_after(_ABANDONED) as scope:
                        with contextlib.suppress(Exception):
                            await process.started(program)
                        await process.aclose()
                    if scope.cancelled_caught:
                        await self._end_if_stuck(0)
            raise
        return process

    async def _end_if_stuck(self, seconds: float) -> None:
        """Ends the container if its engine, which answers, does not start a process in it in this time.

        Code that stops each new process at once keeps the engine waiting, and some engines keep the container locked.
        """
        await anyio.sleep(seconds)
        if self.outside is not None and not await self._container.silence():
            self.outside.kill()

    async def silence(self) -> Problem | None:
        return await self._container.silence()

    async def _unanswered(self, error: Unavailable) -> Unavailable:
        """The error for a missing answer: this one, or that the engine is silent."""
        silence = await self.silence()
        return EngineUnavailable(*silence) if silence else error

    async def ready(self) -> None:
        await super().ready()
        # Nothing is started in a container whose agent code has stopped: Podman would wait for the start of the process
        # for ever, and could not even remove the container.
        if not self._joined and await self._agent.usage() is None and self.alive:
            raise await self._unanswered(
                Unavailable("the sandbox does not answer, as when code stops all processes", "reset the session")
            )

    @asynccontextmanager
    async def paused(self, code: Collection[Process]) -> AsyncIterator[None]:
        if self._joined:  # its other processes are not the code's
            yield
            return
        try:
            await self._agent.pause(process.group for process in self.processes if process in code)
            await self._agent.usage()  # returns once all is stopped
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._agent.signal(_EVERYTHING, signal.SIGCONT)

    @asynccontextmanager
    async def listen(self, port: int = 0) -> AsyncIterator[Listener]:
        socket = await self.outside.listen(port) if self.outside is not None else None
        async with open_relay(self, port) if socket is None else listen_on(socket) as listener:
            yield listener

    async def usage(self) -> Usage:
        if not self.alive:
            return self._last
        if self.outside is not None:
            with contextlib.suppress(OSError):  # the container is gone: the last counts stay
                self._last = self.outside.usage()
            return self._last
        self._last = await self._agent.usage() or self._last
        return self._last

    async def fullness(self, *, thorough: bool) -> Fullness:
        found = await self._fullness(thorough=thorough) if self.alive else Fullness()
        # A joined container has its own folders, with more than the code's files in them.
        return Fullness(disk=found.disk) if self._joined else found

    async def _fullness(self, *, thorough: bool) -> Fullness:
        if self.outside is not None:
            return await self.outside.folders.fullness(self.policy, thorough=thorough)
        if not thorough:
            return Fullness()
        return read_fullness(await self._agent.look(_FULL.format(self.policy.largest_file - 1), ANSWER))

    async def new_outside(self) -> Sequence[str]:
        if self._joined or not self.alive:  # a joined container has files of others there
            return ()
        if self.outside is not None:
            return await self.outside.folders.new_outside()
        if not self._agent.touched:
            return ()
        found = (await self._agent.look(LIST_OUTSIDE, ANSWER)).split(b"\0")
        return [path for path in map(os.fsdecode, found) if kept_outside(path)]

    async def list_files(self) -> Files:
        if self.outside is not None:
            return await self.outside.folders.list_files()
        async with in_time(self, "listing files", seconds=_LISTING) as tools:
            return read_list(await tools.look(LIST))

    async def look(self, command: str, seconds: float) -> bytes:
        return await self._agent.look(command, seconds)

    async def kill(self) -> None:
        self._killed = True
        if self._joined:
            for process in [*self.processes]:
                await process.kill()
                process.close()
            self._agent.close()
            return
        # An engine that cannot pass on the output does not remove the container either, for ten seconds.
        for process in [*self.processes]:
            process.close()
        async with open_tasks() as tasks:
            tasks.start_soon(self._agent.forget_all)
            # Before the agent is closed: a container that is ending by itself can block its own removal.
            await self._container.remove()
            tasks.cancel_scope.cancel()
        self._agent.close()

    async def lacking(self, programs: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
        # Checked each time: code that runs here can forge the answer, and must not affect the image's other sandboxes.
        command = [
            "env",
            *environment(env, self._prefix),
            *self._prefix,
            "sh",
            "-c",
            MISSING,
            "sh",
            *programs,
        ]
        return (await self._agent.look(shlex.join(command), _SEARCHING)).decode(errors="replace").split()

    async def ending(self) -> bool:
        """Whether it has ended, or will in a moment, as when all its processes were killed at once."""
        await self._agent.ending(_ENDING)
        return not self.alive

    async def answers(self) -> bool:
        """Waits for its agent to answer; false if the container has ended, true even if code stops the agent."""
        with anyio.move_on_after(ANSWER):
            await self._agent.usage()
        return self.alive

    async def signal(self, group: int, number: signal.Signals) -> None:
        """Sends a signal to a process group in the container; does nothing if the container is gone."""
        await self._agent.signal(group, number)

    async def beat(self) -> None:
        """Signals the agent that the server is alive."""
        await self._agent.send("beat")

    async def end(self) -> None:
        """Removes the container and closes everything that is connected to it."""
        outside, self.outside = self.outside, None
        try:
            async with open_tasks() as tasks:
                if outside is not None:
                    await outside.close()
                    tasks.start_soon(outside.kill_later)
                await self.kill()
                tasks.cancel_scope.cancel()
        finally:
            if outside is not None:
                outside.release()
            self._agent.close()
