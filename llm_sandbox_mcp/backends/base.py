"""The interface of a backend, which makes sandboxes on one engine; what can be built on `spawn` is built here, once."""

import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import anyio
import anyio.lowlevel
from anyio.abc import AsyncResource, ByteReceiveStream, ByteSendStream

from ..aio.tasks import open_tasks
from ..base.errors import EngineUnavailable, SandboxLost
from ..base.messages import Problem
from ..base.open_folders import View
from ..base.policy import Policy
from ..base.results import OnProgress
from .layout import PATH, WORKDIR
from .listening import Listener
from .listing import LIST, MISSING, Files, read_list
from .patience import Patience
from .room import Room, open_files

OnBytes = Callable[[bytes], Awaitable[None]]
"""Receives output as it appears."""

OWN_ENTRIES = 1
"""Entries that a file system counts although it is empty: its root folder."""

_COMMAND_OUTPUT = 1 << 20
"""Bytes kept of the output of one of our own tools inside a sandbox; the rest is dropped."""
LOOK_OUTPUT = 8 << 20
"""Bytes kept of the output of `Sandbox.look`, where the whole output counts."""
SILENT = 3.0
"""Seconds without an answer, to a question that costs it nothing, after which an engine counts as silent."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of `doctor`: something that works, works partly, or does not."""

    name: str
    state: Literal["ok", "degraded", "missing"]
    detail: str
    fix: str = ""
    """The command or step that fixes it."""

    def must_not_be_missing(self) -> None:
        """Raises `EngineUnavailable` with the detail and the fix if the state is `missing`."""
        if self.state == "missing":
            raise EngineUnavailable(self.detail, self.fix)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a server gives a backend to work with."""

    runtime: Path
    """The server's own runtime folder, removed when the server ends; the folder's name is the server's id."""
    handlers: Mapping[str, Path]
    """The handler folder of each language."""
    environments: Sequence[Path]
    tools: Path
    """Folders of this machine with prepared environments and our own tools. A sandbox sees these and no others, under
    their names here, and what appears in them later."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The server's own environment variables, which configure engines; none of them reaches a sandbox."""
    libraries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The libraries that the profile prepares for each language; images that are built contain them."""
    open_network: bool = False
    """Whether policies will use the network that the engine itself has."""
    policy: Policy | None = None
    """The widest policy that a sandbox will have, if it is known."""
    require_limits: bool = False
    """Whether no sandbox may be made unless the engine enforces every limit for the sandbox as a whole."""
    views: Sequence[View] = ()
    """The folders of this machine that code sees. A backend mounts them, or else makes their places writable for
    copies."""

    def held(self, limits: Check) -> Check:
        """A backend's row about limits: `missing` if one limit is not enforced but all are required."""
        if limits.state != "degraded" or not self.require_limits:
            return limits
        return replace(limits, state="missing", detail=f"backend.require_limits is set, and {limits.detail}")


@dataclass(frozen=True, slots=True)
class Usage:
    """How often a sandbox ran into its limits since it was made, counted by the engine, outside the sandbox."""

    oom_kills: int = 0
    pids_refused: int = 0
    cpu: float | None = None
    """Seconds of processor time of all its processes; None if nothing counts them together."""

    def since(self, before: "Usage") -> "Usage":
        """The difference to an earlier count."""
        cpu = None if self.cpu is None or before.cpu is None else self.cpu - before.cpu
        return Usage(self.oom_kills - before.oom_kills, self.pids_refused - before.pids_refused, cpu)


@dataclass(frozen=True, slots=True)
class Fullness:
    """How full the folders are that code can write to; measured without the help of that code."""

    disk: bool = False
    """Whether one of the folders has no space left."""
    entries: int = 0
    """Files and folders in the folder that has most; 0 if nothing counts them."""
    large: bool = False
    """Whether a file in one of the folders has reached the maximum size of one file."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended inside a sandbox."""

    exit_code: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Zygote:
    """An interpreter that waits with modules imported, of which sandboxes can be forks."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    modules: tuple[str, ...]
    missed: frozenset[str] = field(default=frozenset(), compare=False)
    """What the modules have looked for in vain."""

    def equals(self, argv: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether a process with this argv and environment would be the same but for the modules."""
        return (self.argv, dict(self.environment)) == (tuple(argv), dict(environment))


class Layer(ABC):
    """The files of a sandbox that has ended, which others start with, copy-on-write."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether sandboxes can still start with it."""


class Process(AsyncResource):
    """A process in a sandbox: three byte streams, an end, and signals to its process group.

    `stdout` and `stderr` end with `anyio.EndOfStream`; a cancelled `receive` or `wait` loses nothing. `aclose` kills
    the process.
    """

    stdin: ByteSendStream
    stdout: ByteReceiveStream
    stderr: ByteReceiveStream
    signalled: bool | None = None
    """Whether a signal ended it; None if it runs, or if the engine does not tell that from an exit code of 128 + N."""

    @abstractmethod
    async def wait(self) -> int:
        """The exit code, 128 + N after signal N; raises `SandboxLost` when the sandbox is gone."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether it still runs, as far as is known without querying the engine."""

    @abstractmethod
    async def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process group; does nothing if the group is gone already."""

    @abstractmethod
    async def settle(self) -> None:
        """Returns once all signals sent so far have arrived, so that none of them hits what the process does next.

        If their arrival is not confirmed, it returns after a limited time all the same.
        """

    async def silence(self) -> Problem | None:
        """Why the engine of its sandbox passes nothing on now; None if it does."""
        return None

    async def kill(self) -> None:
        """Ends the process group at once."""
        await self.signal(signal.SIGKILL)


class Sandbox(ABC):
    """One isolated file system and process space, owned by the scope that opened it."""

    id: str
    policy: Policy
    image: str
    """The image it was made from; empty if the engine has no images."""
    path: str = PATH
    """The search path for programs in it."""
    processes: Collection[Process] = ()
    """The processes that were started in it and have not been closed."""
    zygote: Zygote | None = None
    """The one of which the next process that equals it is a fork, with its modules; None once there was one."""
    layer: Layer | None = None
    """The one whose files it started with; None if it started with empty folders."""
    mounted: Collection[View] = ()
    """The views that it has as mounts, read-only; all others are to be copied into it."""

    @cached_property
    def patience(self) -> Patience:
        """How long our own tools may be busy in it."""
        return Patience()

    async def ready(self) -> None:
        """Raises `Unavailable` if code keeps our own tools from being started in it."""
        await anyio.lowlevel.checkpoint_if_cancelled()

    @asynccontextmanager
    async def paused(self, code: Collection[Process]) -> AsyncIterator[None]:
        """Stops the processes of code while the scope lasts; all that it has stopped itself goes on when it ends.

        What was started here and is not `code` goes on at once, even if code has stopped it, so that our own tools can
        end. It is no promise: code can find ways to be continued, and not every backend can do this.
        """
        yield

    @property
    def origin(self) -> str:
        """Where its programs come from; for messages."""
        return f"image {self.image}" if self.image else "/usr of this machine"

    @abstractmethod
    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, *, closes_input: bool = False
    ) -> Process:
        """Starts a process; `env` is its whole environment.

        `closes_input` promises that the caller sends all of the input, then closes it. The exit code is then reported
        however early the process ends. Without it, a remote engine may lose the exit code of a process that ends while
        input is being sent to it.
        Raises `StartFailed` when the program cannot be started and `SandboxLost` when the sandbox is gone.
        """

    @abstractmethod
    def listen(self, port: int = 0) -> AbstractAsyncContextManager[Listener]:
        """Listens on the sandbox's own loopback while the scope lasts; the sandbox can reach only what listens there.

        Uses the given port, or for 0 any free one. Raises `ListeningFailed` if the sandbox cannot listen or the port is
        in use, and `SandboxLost` when the sandbox is gone.
        """

    @abstractmethod
    async def usage(self) -> Usage:
        """How often limits were hit so far. Bounded in time: if the sandbox does not answer, the last known counts."""

    @abstractmethod
    async def fullness(self, *, thorough: bool) -> Fullness:
        """How full its folders are; `thorough`, for a run that failed, also finds what takes some time to find."""

    @abstractmethod
    async def kill(self) -> None:
        """Ends every process of the sandbox; the sandbox cannot be used afterwards."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether processes can still be started in it."""

    async def loss(self) -> SandboxLost | None:
        """What ended it, if its engine reports that; None otherwise. Takes a few seconds at most."""
        return None

    async def silence(self) -> Problem | None:
        """Why its engine passes nothing on now; None if it does. Takes a few seconds at most.

        Ask it before code is blamed for giving no answer.
        """
        return None

    async def list_files(self) -> Files:
        """The regular files below the working directory; checks at most 10,000 entries.

        Leaves out hidden files, files in `node_modules` and `__pycache__`, and names that are not UTF-8. Raises
        `Unavailable` if code keeps our own tools from listing them.
        """
        return read_list((await self.run(["sh", "-c", LIST], {"PATH": self.path})).stdout)

    async def new_outside(self) -> Sequence[str]:
        """The paths of files that were made or changed, since the last call, outside of the working directory.

        Only of such as code makes for somebody to have: pictures, tables, documents. Costs next to nothing if there are
        none; a backend to which it would cost more leaves it out.
        """
        return ()

    async def look(self, command: str, seconds: float) -> bytes:
        """The output of one of our own shell commands, on one line; a part of it if it is not done in time.

        Where starting a process is slow, the command runs without one that the engine starts. Beyond 8 MiB, the output
        is cut, or empty.
        """
        with anyio.move_on_after(seconds):
            return (await self.run(("sh", "-c", command), {"PATH": self.path}, most=LOOK_OUTPUT)).stdout
        return b""

    async def lacking(self, programs: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
        """Which of these programs a process with this environment does not find in the sandbox."""
        return (await self.run(["sh", "-c", MISSING, "sh", *programs], env)).stdout.decode(errors="replace").split()

    async def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: str = WORKDIR,
        stdin: AsyncIterator[bytes] | None = None,
        most: int = _COMMAND_OUTPUT,
        on_output: Callable[[], OnBytes] | None = None,
    ) -> Completed:
        """Runs a command until it ends; sends its input and reads both outputs at once; keeps `most` bytes of each.

        `on_output` makes what gets one of the outputs, as it appears and as far as it is kept.
        """
        outputs = bytearray(), bytearray()
        async with await self.spawn(argv, env, cwd, closes_input=True) as process:
            async with open_tasks() as tasks:
                for stream, kept in ((process.stdout, outputs[0]), (process.stderr, outputs[1])):
                    tasks.start_soon(drain, stream, kept, most, on_output() if on_output is not None else None)
                await feed(process.stdin, stdin)
            exit_code = await process.wait()
        return Completed(exit_code, *map(bytes, outputs))


async def feed(stdin: ByteSendStream, chunks: AsyncIterator[bytes] | None) -> None:
    """Writes all chunks, then closes the stream; stops early when nobody reads any more."""
    try:
        if chunks is not None:
            async for chunk in chunks:
                await stdin.send(chunk)
    except anyio.BrokenResourceError:
        pass
    finally:
        await stdin.aclose()


async def drain(
    stream: ByteReceiveStream, kept: bytearray, most: int = _COMMAND_OUTPUT, on_output: OnBytes | None = None
) -> None:
    """Reads until EOF and keeps the first bytes, which it also passes on."""
    async for chunk in stream:
        part = chunk[: max(0, most - len(kept))]
        kept += part
        if part and on_output is not None:
            await on_output(part)


OnLine = Callable[[str], None]
"""Receives a line of progress; called in a worker thread."""


@dataclass(frozen=True, slots=True)
class Template:
    """An image that was committed from a session."""

    image: str
    size: int
    """Bytes."""


class Images(ABC):
    """The images of one engine that sandboxes are made from."""

    @abstractmethod
    async def build(self, language: str, on_line: OnLine, *, base: str = "", network: str = "") -> None:
        """Builds the image of a language, on another base if one is given; `StartFailed` with the last output lines."""

    @abstractmethod
    async def pull(self, language: str, on_line: OnLine) -> None:
        """Pulls the image of a language; `StartFailed` when it cannot be pulled."""

    @abstractmethod
    async def size(self, language: str) -> int | None:
        """Bytes of the image of a language; None if the image does not exist."""

    @abstractmethod
    async def prepare(self, language: str, on_line: OnLine) -> None:
        """Makes the image of a language available in the way that the profile says; `StartFailed` if that fails."""

    @abstractmethod
    async def commit(self, sandbox: Sandbox, image: str) -> str:
        """Makes a template from the contents of a sandbox's folders and returns its name; replaces an older template.

        Raises `InvalidArgument` if the name is not a valid image name or belongs to an image that is not a template,
        `CapacityReached` if the profile allows no more templates, and `StartFailed`.
        """

    @abstractmethod
    async def templates(self) -> list[Template]:
        """The existing templates, by name."""

    @property
    @abstractmethod
    def most_templates(self) -> int:
        """How many templates the profile allows."""

    @abstractmethod
    async def remove(self, image: str) -> None:
        """Removes a template; `InvalidArgument` if it is not a template, `StartFailed` if it is in use."""


class Backend(ABC):
    """Makes sandboxes on one engine; an async context manager whose scope owns the engine's own resources."""

    name: str
    environment: str = ""
    """The folder of the environment in every image; empty if the host prepares environments and mounts them."""

    forks = False
    """Whether sandboxes can be forks of a zygote."""

    images: Images | None = None
    """Operations on its images; None if the engine has no images."""

    async def chosen(self) -> "Backend":
        """The backend that does the work: this one, or the one that `auto` chooses; raises the errors of `sandbox`."""
        return self

    def image_of(self, language: str) -> str:
        """The image that sandboxes for a language are made from; empty if the engine has no images."""
        return ""

    @abstractmethod
    async def limits(self) -> Check:
        """Whether each limit of a policy holds for all processes of a sandbox together, and which limits do not.

        Never raises for a missing engine. If the state is `missing`, no sandbox is made. `probe` contains this row too.
        """

    @abstractmethod
    async def probe(self) -> list[Check]:
        """What works here, what is degraded and what is missing; never raises for a missing engine."""

    async def obstacle(self) -> Problem | None:
        """Why no sandbox can be made here; None if one can. Backends whose `probe` does more have a cheaper way."""
        return next((Problem(row.detail, row.fix) for row in await self.probe() if row.state == "missing"), None)

    async def tell(self, on_progress: OnProgress) -> None:
        """Reports why sandboxes that are being made have to wait, until it is cancelled; `EngineUnavailable`."""
        await anyio.sleep_forever()

    def room(self) -> Sequence[Room]:
        """The resources that, next to the profile, bound how many sandboxes can exist at once; never empty."""
        return (open_files(),)

    @property
    def bottleneck(self) -> Room:
        """The resource that allows the fewest sandboxes."""
        return min(self.room(), key=lambda room: room.sandboxes)

    @abstractmethod
    def sandbox(
        self, policy: Policy, image: str = "", zygote: Zygote | None = None, layer: Layer | None = None
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Opens a sandbox that lives as long as the scope; `image` is one that `image_of` returned.

        It is a fork of `zygote` if the backend `forks` and this one is ready; nothing waits for that. It starts with
        the files of `layer`; if that is not possible, it has empty folders, and its `layer` is None.

        Raises `EngineUnavailable` or `StartFailed`. Leaving the scope ends every process and frees everything; this is
        shielded from cancellation and bounded in time.
        """

    @asynccontextmanager
    async def kept(self, sandbox: Sandbox) -> AsyncIterator[Layer | None]:
        """Ends a sandbox, and keeps its files in /sandbox, /home and /tmp for sandboxes that start with them.

        They are kept as long as the scope lasts; sandboxes that have them by then go on. None if it cannot be done
        here: then the sandbox lives on, or has ended if that was found out late.
        """
        yield None

    async def unshared(self) -> str:
        """Why sandboxes cannot start with the files of another one, as soon as that is known; empty if they can."""
        return f"{self.name} has no way to share them"

    async def unforked(self, zygote: Zygote) -> str:
        """Why sandboxes cannot be forks of a zygote, as soon as that is known; empty if they can, or none is a fork."""
        return ""

    @abstractmethod
    async def sweep(self) -> int:
        """Removes what servers that are gone left behind; returns the number of things removed."""

    @abstractmethod
    async def __aenter__(self) -> "Backend": ...

    @abstractmethod
    async def __aexit__(self, *exc_info: object) -> None: ...
