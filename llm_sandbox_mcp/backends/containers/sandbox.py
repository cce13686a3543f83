"""A living container: processes are started in it by the engine, and its agent does the rest."""

import contextlib
import logging
import re
import secrets
import shlex
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from ...errors import SandboxError, StartFailed, Unavailable
from ...policy import Policy
from ...tasks import open_tasks
from ..base import OWN_ENTRIES, Fullness, Process, Sandbox, Usage
from ..layout import HOME, WORKDIR
from ..listening import Listener, listen_on
from ..listing import LIST, MISSING, Files, read_list
from .container import Container, Streams, lost_sandbox
from .outside import Outside
from .process import ContainerProcess, environment, search_path, starter
from .relay import open_relay

_log = logging.getLogger(__name__)

FOLDERS = (WORKDIR, HOME, "/tmp")
"""What code can write, in every container."""

_START = 60.0
"""Seconds from the container's start to its agent's first word."""
_END = 10.0
"""Seconds for its removal; after that it is tried again."""
_AGAIN = 5.0
"""Seconds between two tries to remove what its engine did not let go of."""
_STARTED = 30.0
"""Seconds for a process to say its id; code of the same user can stop it before it does."""
_ANSWER = 20.0
"""Seconds for the agent to answer; code of the same user can stop it, or speak in its place."""
_LINE = 4096
"""Bytes of an answer of the agent's."""
_FORGET = 16
"""How often what was said unasked is taken in and dropped, 1 MiB and a little each time."""
_LISTING = 30.0
"""Seconds for what takes longer: a list of all files, or looking for programs in an image's own environment."""
_READ = 1 << 16
_SEEN = 8 << 20
"""Bytes that the agent may say of what it sees."""
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
        self._agent = agent
        self._prefix = prefix
        self._joined = joined
        self.outside: Outside | None = None
        """The view from this machine, where there is one; set before any code runs."""
        self.leaving = False
        """Whether its user has left it, so that it will be gone soon."""
        self.begun = False
        """Whether its agent takes requests; before that it takes what is sent for the handlers."""
        self._asking = anyio.Lock()
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
            with contextlib.suppress(anyio.BrokenResourceError):
                await self._agent.stdin.send(b"%d\n" % len(handlers) + handlers)
            said = await self._line()
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
        if not self._killed and not self._asking.locked():
            # What code says in the agent's name must not hide the agent's end, which comes after it.
            for _ in range(_FORGET):
                self._agent.look()
                if not self._agent.forget():
                    break
        return not self._killed and not self._agent.ended.is_set()

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
        async with self._asking:
            with anyio.move_on_after(_ANSWER):
                self._last = await self._ask_usage() or self._last
        return self._last

    async def _ask_usage(self) -> Usage | None:
        """What the agent counts; None when it has ended. A word of its own tells the answer from one that is forged."""
        word = secrets.token_hex(8)
        await self.tell(f"usage {word}")
        while line := await self._line():
            match line.split():
                case ["usage", given, kills, refused, cpu] if given == word:
                    return Usage(int(kills), int(refused), int(cpu) / 1e6 or None)
        return None

    async def fullness(self, *, thorough: bool) -> Fullness:
        found = await self._fullness(thorough=thorough) if self.alive else Fullness()
        # One that was joined has folders of its own, and in them more than the code's files.
        return Fullness(disk=found.disk) if self._joined else found

    async def _fullness(self, *, thorough: bool) -> Fullness:
        if self.outside is not None:
            return await self.outside.folders.fullness(self.policy, thorough=thorough)
        if not thorough:
            return Fullness()
        return read_fullness(await self._look(_FULL.format(self.policy.largest_file - 1), _ANSWER))

    async def list_files(self) -> Files:
        if self.outside is not None:
            return await self.outside.folders.list_files()
        return read_list(await self._look(LIST, _LISTING))

    async def _look(self, command: str, seconds: float) -> bytes:
        """What a command prints that the agent runs; nothing when it does not come to its end in time.

        It is spared a start by the engine, which on a distant one takes much longer than the command.
        """
        word = secrets.token_hex(8)
        mark = f"\0{word}\n".encode()
        said = bytearray()
        async with self._asking:
            with anyio.move_on_after(seconds), contextlib.suppress(anyio.EndOfStream):
                await self.tell(f"look {word} {command}")
                while said.count(mark) < 2 and len(said) < _SEEN:
                    said += await self._agent.stdout.receive(_READ)
        # Before the first mark comes what was answered too late to be waited for.
        match bytes(said).split(mark, 2):
            case [_, seen, _]:
                return seen
            case _:
                return b""

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
            tasks.start_soon(self._forget_all)
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
        return (await self._look(shlex.join(command), _LISTING)).decode(errors="replace").split()

    async def ending(self) -> bool:
        """Whether it has ended or does so in a moment, as it does when all processes were killed at once."""
        with anyio.move_on_after(_ENDING):
            async with self._asking:
                await self._forget_all()
        return not self.alive

    async def answers(self) -> bool:
        """Whether its agent still answers, or may do so once code lets it; false when the container has ended."""
        with anyio.move_on_after(_ANSWER):
            async with self._asking:
                await self._ask_usage()
        return self.alive

    async def _forget_all(self) -> None:
        while not self._agent.ended.is_set():
            await self._agent.take_in()
            self._agent.forget()

    async def signal(self, group: int, number: signal.Signals) -> None:
        """Sends a signal to a process group inside; nothing happens when the container is gone."""
        await self.tell(f"signal {number.name.removeprefix('SIG')} {group}")

    async def tell(self, line: str) -> None:
        """Sends one line to the agent; nothing happens when it is gone, or takes nothing any more."""
        # Busy where another line is stuck already.
        with anyio.move_on_after(_ANSWER), contextlib.suppress(anyio.BrokenResourceError, anyio.BusyResourceError):
            await self._agent.stdin.send(line.encode() + b"\n")

    async def end(self) -> None:
        """Removes the container and lets go of all that leads to it."""
        outside, self.outside = self.outside, None
        try:
            if outside is not None:
                await outside.close()
            await self.kill()
        finally:
            self._agent.close()

    async def _line(self) -> str:
        """The agent's next line, of a long one a part; what is there of it when it ends."""
        line = bytearray()
        while not line.endswith(b"\n") and len(line) < _LINE:
            try:
                line += await self._agent.stdout.receive(1)
            except anyio.EndOfStream:
                break
        return line.decode(errors="replace").strip() if line != b"\n" else "-"


@asynccontextmanager
async def owned(sandbox: ContainerSandbox, tasks: TaskGroup) -> AsyncIterator[None]:
    """Removes the sandbox's container with the scope; one that its engine does not let go of then, in `tasks` later."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            obstacle = await _removed(sandbox)
        if obstacle:
            _log.warning("%s is not removed yet: %s", sandbox.id, obstacle)
            tasks.start_soon(_remove_later, sandbox)


async def _removed(sandbox: ContainerSandbox) -> str:
    """Removes it; why that did not work, empty where it did."""
    with anyio.move_on_after(_END):
        try:
            await sandbox.end()
        except SandboxError as error:
            return str(error)
        return ""
    return f"no answer within {_END:g} s"


async def _remove_later(sandbox: ContainerSandbox) -> None:
    """For as long as the server lives; what is there then is left to the next server's sweep."""
    while True:
        await anyio.sleep(_AGAIN)
        if not await _removed(sandbox):
            return


async def ask(container: Container, argv: Sequence[str]) -> str | None:
    """The first words that a command prints in a container that may be another server's; None without an answer."""
    with anyio.move_on_after(_ANSWER):
        streams = await container.start(argv, fed=False)
        try:
            return (await streams.stdout.receive(_LINE)).decode(errors="replace")
        except anyio.EndOfStream:
            return ""
        finally:
            streams.close()
    return None
