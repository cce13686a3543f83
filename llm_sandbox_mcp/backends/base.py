"""What a backend is: it makes sandboxes on one engine; all that can be derived from `spawn` is derived here, once."""

import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import anyio
from anyio.abc import AsyncResource, ByteReceiveStream, ByteSendStream

from ..errors import EngineUnavailable, SandboxLost
from ..policy import Policy
from ..tasks import open_tasks
from .images import Images
from .layout import PATH, WORKDIR
from .listening import Listener
from .listing import LIST, MISSING, Files, read_list
from .room import Room, open_files

OWN_ENTRIES = 1
"""Of a folder that is a file system of its own: itself."""

_COMMAND_OUTPUT = 1 << 20
"""Bytes kept of what a tool of ours prints inside a sandbox; the rest is dropped."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of `doctor`: something that works, works partly, or does not."""

    name: str
    state: Literal["ok", "degraded", "missing"]
    detail: str
    fix: str = ""
    """The command or the step that fixes it."""

    def must_not_be_missing(self) -> None:
        """Raises `EngineUnavailable` with it where it is."""
        if self.state == "missing":
            raise EngineUnavailable(f"{self.detail}; {self.fix}")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a server gives a backend to work with."""

    runtime: Path
    """The server's own, gone with it; its name is the server's id."""
    handlers: Mapping[str, Path]
    """The handler folder of each language."""
    environments: Path
    tools: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    """What the server's own environment says of engines; none of it reaches a sandbox."""
    libraries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What the profile has prepared for each language, for images that are built."""
    open_network: bool = False
    """Whether policies will want the network that the engine itself has."""
    policy: Policy | None = None
    """The widest that a sandbox will have, where that is known."""
    require_limits: bool = False
    """Whether no sandbox may be made where the engine does not hold it to each of its limits as a whole."""

    def held(self, limits: Check) -> Check:
        """A backend's row about limits: `missing` where one does not hold and all have to."""
        if limits.state != "degraded" or not self.require_limits:
            return limits
        return replace(limits, state="missing", detail=f"backend.require_limits is set, and {limits.detail}")


def halves(message: str) -> tuple[str, str]:
    """An error's cause and its next step, which a semicolon divides; what a row of `doctor` has them for."""
    cause, _, step = message.partition("; ")
    return cause, step


@dataclass(frozen=True, slots=True)
class Usage:
    """How often a sandbox ran into its limits since it was made, counted by the engine, outside the sandbox."""

    oom_kills: int = 0
    pids_refused: int = 0
    cpu: float | None = None
    """Seconds of processor time of all its processes; None where nobody counts them together."""

    def since(self, before: "Usage") -> "Usage":
        """What came after an earlier count."""
        cpu = None if self.cpu is None or before.cpu is None else self.cpu - before.cpu
        return Usage(self.oom_kills - before.oom_kills, self.pids_refused - before.pids_refused, cpu)


@dataclass(frozen=True, slots=True)
class Fullness:
    """How full the folders are that code can write, seen without asking the code."""

    disk: bool = False
    """Whether one of them has no room left."""
    entries: int = 0
    """Files and folders in the one that has most; 0 where nobody counts them."""
    large: bool = False
    """Whether a file in one of them has all the bytes that one file may have."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended inside a sandbox."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Process(AsyncResource):
    """A process in a sandbox: three byte streams, an end, and signals to its process group.

    `stdout` and `stderr` end with `anyio.EndOfStream`; a cancelled `receive` or `wait` loses nothing. Closing kills.
    """

    stdin: ByteSendStream
    stdout: ByteReceiveStream
    stderr: ByteReceiveStream

    @abstractmethod
    async def wait(self) -> int:
        """The exit code, 128 + N after signal N; raises `SandboxLost` when the sandbox is gone."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether it has not ended, as far as is known without asking."""

    @abstractmethod
    async def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process group; nothing happens when it is gone already."""

    @abstractmethod
    async def settle(self) -> None:
        """Returns once the signals sent so far have come, so that none of them meets what the process does next.

        Where nobody says so it returns too, after a moment.
        """

    async def kill(self) -> None:
        """Ends the process group at once."""
        await self.signal(signal.SIGKILL)


class Sandbox(ABC):
    """One isolated file system and process space, owned by the scope that opened it."""

    id: str
    policy: Policy
    image: str
    """What it was made of; empty where the engine has no images."""
    path: str = PATH
    """Where programs are looked for in it."""

    @property
    def origin(self) -> str:
        """Where its programs come from, in messages."""
        return f"image {self.image}" if self.image else "/usr of this machine"

    @abstractmethod
    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, *, fed: bool = False
    ) -> Process:
        """Starts a process; `env` is its whole environment.

        `fed`: its input will be sent to its end and closed. How it ended is then told however early it does; of another
        that ends while something is sent to it, that may be lost on the way from a distant engine.
        Raises `StartFailed` when the program cannot be started and `SandboxLost` when the sandbox is gone.
        """

    @abstractmethod
    def listen(self, port: int = 0) -> AbstractAsyncContextManager[Listener]:
        """Listens on the sandbox's own loopback while the scope lasts; who accepts is all that the sandbox can reach.

        At this port, or at any that is free. Raises `ListeningFailed` where the sandbox cannot listen, or another does
        there, and `SandboxLost` when it is gone.
        """

    @abstractmethod
    async def usage(self) -> Usage:
        """The limits that were hit so far; in a bounded time those that are known, where it does not answer."""

    @abstractmethod
    async def fullness(self, *, thorough: bool) -> Fullness:
        """How full its folders are; with `thorough`, as after a run that failed, also what takes some time to find."""

    @abstractmethod
    async def kill(self) -> None:
        """Ends every process of the sandbox; the sandbox is of no use afterwards."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether processes can still be started in it."""

    async def loss(self) -> SandboxLost | None:
        """What ended it, where its engine tells; None otherwise. Takes seconds at most."""
        return None

    async def list_files(self) -> Files:
        """The regular files below the working directory, at most 10,000 entries looked at.

        Hidden ones, those in `node_modules` and `__pycache__`, and names that are not UTF-8 do not count.
        """
        return read_list((await self.run(["sh", "-c", LIST], {"PATH": self.path})).stdout)

    async def lacking(self, programs: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
        """Which of these programs a process with this environment does not find there."""
        return (await self.run(["sh", "-c", MISSING, "sh", *programs], env)).stdout.decode(errors="replace").split()

    async def run(
        self, argv: Sequence[str], env: Mapping[str, str], *, stdin: AsyncIterator[bytes] | None = None
    ) -> Completed:
        """Runs a command to its end, its input fed and both its outputs drained at once, up to 1 MiB kept of each."""
        outputs = bytearray(), bytearray()
        async with await self.spawn(argv, env, fed=True) as process:
            async with open_tasks() as tasks:
                tasks.start_soon(drain, process.stdout, outputs[0])
                tasks.start_soon(drain, process.stderr, outputs[1])
                await feed(process.stdin, stdin)
            exit_code = await process.wait()
        return Completed(exit_code, *map(bytes, outputs))


async def feed(stdin: ByteSendStream, chunks: AsyncIterator[bytes] | None) -> None:
    """Writes all chunks and closes; a reader that went away ends it early."""
    try:
        if chunks is not None:
            async for chunk in chunks:
                await stdin.send(chunk)
    except anyio.BrokenResourceError:
        pass
    finally:
        await stdin.aclose()


async def drain(stream: ByteReceiveStream, kept: bytearray) -> None:
    """Reads to the end, and keeps the first MiB."""
    async for chunk in stream:
        kept += chunk[: max(0, _COMMAND_OUTPUT - len(kept))]


class Backend(ABC):
    """Makes sandboxes on one engine; an async context manager in whose scope the engine's own resources live."""

    name: str
    environment: str = ""
    """The folder in which every image has an environment of its own; empty where the host prepares and mounts them."""

    images: Images | None = None
    """What can be done about its images; None where the engine has none."""

    async def chosen(self) -> "Backend":
        """The backend that does the work, where another has to be chosen first; raises what `sandbox` would."""
        return self

    def image_of(self, language: str) -> str:
        """The image that sandboxes for a language are made of; empty where the engine has no images."""
        return ""

    @abstractmethod
    async def limits(self) -> Check:
        """Whether each limit of a policy holds for all processes of a sandbox together, and which do not.

        Never raises for a missing engine; no sandbox is made where it is `missing`. A row of `probe` too.
        """

    @abstractmethod
    async def probe(self) -> list[Check]:
        """What works here, what is degraded and what is missing; never raises for a missing engine."""

    async def obstacle(self) -> str:
        """Why no sandbox can be made here; empty where one can. Cheaper than `probe` where that does more."""
        missing = [check for check in await self.probe() if check.state == "missing"]
        return f"{missing[0].detail}; {missing[0].fix}" if missing else ""

    def room(self) -> Sequence[Room]:
        """What bounds how many sandboxes there can be at once, beside the profile; never empty."""
        return (open_files(),)

    @property
    def tightest(self) -> Room:
        """That of which there is least."""
        return min(self.room(), key=lambda room: room.sandboxes)

    @abstractmethod
    def sandbox(self, policy: Policy, image: str = "") -> AbstractAsyncContextManager[Sandbox]:
        """Opens a sandbox that lives as long as the scope; `image` is one that `image_of` gave.

        Raises `EngineUnavailable` or `StartFailed`; leaving the scope ends every process and frees everything, shielded
        and bounded.
        """

    @abstractmethod
    async def sweep(self) -> int:
        """Removes what servers that are gone left behind, and returns how many things that were."""

    @abstractmethod
    async def __aenter__(self) -> "Backend": ...

    @abstractmethod
    async def __aexit__(self, *exc_info: object) -> None: ...
