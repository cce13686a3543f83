"""A living container: processes are started in it by the engine, and its agent does the rest."""

import contextlib
import re
import shlex
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from ...errors import StartFailed, Unavailable
from ...policy import Policy
from ...tasks import open_tasks
from ..base import OWN_ENTRIES, Fullness, Process, Sandbox, Usage
from ..layout import HOME, WORKDIR
from ..listening import Listener, listen_on
from ..listing import LIST, MISSING, Files, read_list
from .container import Container, Streams, lost_sandbox
from .conversation import ANSWER, Conversation
from .outside import Outside
from .process import ContainerProcess, environment, search_path, starter
from .relay import open_relay

FOLDERS = (WORKDIR, HOME, "/tmp")
"""What code can write, in every container."""

_START = 60.0
"""Seconds from the container's start to its agent's first word."""
_STARTED = 30.0
"""Seconds for a process to say its id; code of the same user can stop it before it does."""
_LISTING = 30.0
"""Seconds for what takes longer: a list of all files, or looking for programs in an image's own environment."""
_ABANDONED = 5.0
"""Seconds to find out the id of a process whose start was given up, so that it can be killed."""
_ENDING = 2.5
"""Seconds in which a container ends whose processes were all killed."""


_FULL = f"stat -f -c '%a %c %d' {' '.join(FOLDERS)}; find {' '.join(FOLDERS)} -type f -size +{{}}c -print -quit"
"""Blocks left, then all inodes and those left, a line for each folder; and the path of a file that has more bytes."""
_STATE = re.compile(rb"^(\d{1,20}) (\d{1,20}) (\d{1,20})$", re.MULTILINE)


def read_fullness(said: bytes) -> Fullness:
    """What `_FULL` printed. Only lines in its form count: code of the same user can speak in the agent's place."""
    counts = [[int(word) for word in found] for found in _STATE.findall(said)]
    # Where there are no inodes at all, as in gVisor, they are not counted.
    return Fullness(
        disk=any(left == 0 for left, _, _ in counts),
        entries=max((all_ - left - OWN_ENTRIES for _, all_, left in counts), default=0),
        large=any(line.startswith(b"/") for line in said.splitlines()),
    )


class ContainerSandbox(Sandbox):
    """One container, from its agent's first word to its end."""

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
        """The view from this machine, where there is one; set before any code runs."""
        self.leaving = False
        """Whether its user has left it, so that it will be gone soon."""
        self.begun = False
        """Whether its agent takes requests; before that it takes what is sent for the handlers."""
        self._last = Usage()
        self._killed = False
        self.processes: set[ContainerProcess] = set()
        """Those that have not been closed."""

    @property
    def origin(self) -> str:
        return f"{'' if self._joined else 'image '}{self.image} on {self._container.engine}"

    async def begin(self, handlers: bytes) -> None:
        """Gives the agent the handlers and waits until the container can be used; `StartFailed` with what it lacks."""
        said = ""
        with anyio.move_on_after(_START) as deadline:
            said = await self._agent.introduce(handlers)
        if deadline.cancelled_caught:
            raise StartFailed(f"a container of {self.origin} did not start in {_START:g} s; is its machine overloaded?")
        if said == "stuck":
            raise StartFailed(
                f"what template {self.image} brings cannot be unpacked on {self._container.engine}: its folders "
                "have too little room, or it is damaged; raise limits.disk in the profile, and limits.memory with it"
            )
        if said.startswith("missing "):
            raise self._unfit(f"has no {said.removeprefix('missing ')}")
        word, _, path = said.partition(" ")
        if word != "ready":
            raise await self.ended_at_once()
        self.path = search_path(path)
        self.begun = True

    async def ended_at_once(self) -> Unavailable:
        """The error for one that ended before it could be used."""
        return self._unfit("ended at once")

    def _unfit(self, why: str) -> StartFailed:
        return StartFailed(
            f"a container of {self.origin} {why}; an image needs sh, tar, gzip and GNU find: "
            "llm-sandbox-mcp images build makes one"
        )

    @property
    def alive(self) -> bool:
        return not self._killed and not self._agent.ended

    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, *, fed: bool = False
    ) -> Process:
        command = starter(argv, env, cwd, self._prefix)
        program = (*self._prefix, *argv)[0]
        if not self.alive:
            raise lost_sandbox()
        with anyio.CancelScope(shield=True):
            # Shielded: a start that is given up half way would leave a process that nobody knows.
            process = ContainerProcess(self, await self._container.start(command, fed=fed))
        if self._killed:
            # It came too late to be let go with the others.
            process.close()
            raise lost_sandbox()
        self.processes.add(process)
        try:
            with anyio.move_on_after(_STARTED) as deadline:
                await process.started(program)
            if deadline.cancelled_caught:
                raise StartFailed(
                    f"{program} did not start within {_STARTED:g} s; stop what runs in the session, or reset it"
                )
        except BaseException:
            if process in self.processes:  # it may run, and be known only now
                with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _ABANDONED):
                    with contextlib.suppress(Exception):
                        await process.started(program)
                    await process.aclose()
            raise
        return process

    @asynccontextmanager
    async def listen(self, port: int = 0) -> AsyncIterator[Listener]:
        socket = await self.outside.listen(port) if self.outside is not None else None
        async with open_relay(self, port) if socket is None else listen_on(socket) as listener:
            yield listener

    async def usage(self) -> Usage:
        if not self.alive:
            return self._last
        if self.outside is not None:
            with contextlib.suppress(OSError):  # gone: what was counted last holds
                self._last = self.outside.usage()
            return self._last
        self._last = await self._agent.usage() or self._last
        return self._last

    async def fullness(self, *, thorough: bool) -> Fullness:
        found = await self._fullness(thorough=thorough) if self.alive else Fullness()
        # One that was joined has folders of its own, and in them more than the code's files.
        return Fullness(disk=found.disk) if self._joined else found

    async def _fullness(self, *, thorough: bool) -> Fullness:
        if self.outside is not None:
            return await self.outside.folders.fullness(self.policy, thorough=thorough)
        if not thorough:
            return Fullness()
        return read_fullness(await self._agent.look(_FULL.format(self.policy.largest_file - 1), ANSWER))

    async def list_files(self) -> Files:
        if self.outside is not None:
            return await self.outside.folders.list_files()
        return read_list(await self._agent.look(LIST, _LISTING))

    async def kill(self) -> None:
        self._killed = True
        if self._joined:
            for process in [*self.processes]:
                await process.kill()
                process.close()
            self._agent.close()
            return
        # An engine that cannot get rid of what was printed does not get rid of the container either, for ten seconds.
        for process in [*self.processes]:
            process.close()
        async with open_tasks() as tasks:
            tasks.start_soon(self._agent.forget_all)
            # Before the agent hears of it: a container that ends by itself may be in the way of its own removal.
            await self._container.remove()
            tasks.cancel_scope.cancel()
        self._agent.close()

    async def lacking(self, programs: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
        # Asked each time: code that runs here can answer, and must not do so for other sandboxes of the image.
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
        return (await self._agent.look(shlex.join(command), _LISTING)).decode(errors="replace").split()

    async def ending(self) -> bool:
        """Whether it has ended or does so in a moment, as it does when all processes were killed at once."""
        await self._agent.ending(_ENDING)
        return not self.alive

    async def answers(self) -> bool:
        """Whether its agent still answers, or may do so once code lets it; false when the container has ended."""
        with anyio.move_on_after(ANSWER):
            await self._agent.usage()
        return self.alive

    async def signal(self, group: int, number: signal.Signals) -> None:
        """Sends a signal to a process group inside; nothing happens when the container is gone."""
        await self._agent.signal(group, number)

    async def beat(self) -> None:
        """Tells the agent that the server lives."""
        await self._agent.tell("beat")

    async def end(self) -> None:
        """Removes the container and lets go of all that leads to it."""
        outside, self.outside = self.outside, None
        try:
            if outside is not None:
                await outside.close()
            await self.kill()
        finally:
            self._agent.close()
