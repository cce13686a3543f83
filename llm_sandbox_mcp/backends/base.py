"""What a backend is: it makes sandboxes on one engine; all that can be derived from `spawn` is derived here, once."""

import os
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
from anyio.abc import AsyncResource, ByteReceiveStream, ByteSendStream

from ..errors import BadPath, Unavailable, quoted
from ..policy import Policy
from ..tasks import open_tasks
from ..units import format_size
from .archive import END, ArchiveReader, Member, header, padding

WORKDIR = "/sandbox"
"""Where code starts and where its files are, in every sandbox of every backend."""

HOME = "/home"
"""Writable, and not where the code's own files are."""

FIGURES = f"{HOME}/figures"
LIBRARIES = f"{HOME}/libraries"
"""Where runners write figures, and where each language's libraries are installed, in a folder of its own."""

HANDLERS = "/opt/handlers"
ENVIRONMENTS = "/opt/environments"
TOOLS = "/opt/tools"
"""Where a sandbox sees the handler folders, the prepared environments and our own tools, read-only."""

PATH = "/usr/local/bin:/usr/bin:/bin"

Files = Mapping[str, tuple[int, ...]]
"""Regular files below the working directory, and for each what differs once it is changed."""

TakeMember = Callable[[Member], Awaitable[None]]

_SUMMARY = "Exiting with failure status"
"""In the line with which `tar` ends after it has said what went wrong."""

COPY_SECONDS = 30.0
"""Longest time for one copy in or out."""

_COMMAND_OUTPUT = 1 << 20
"""Bytes kept of what a tool of ours prints inside a sandbox; the rest is dropped."""

_WRITE = """\
cd "$1" || exit
[ ! -d "$2" ] || [ -L "$2" ] || { echo 'it is a folder' >&2; exit 1; }
folder=$2
while [ "$folder" != "${folder%/*}" ]; do
  folder=${folder%/*}
  [ ! -f "$folder" ] || [ -L "$folder" ] || { echo 'a part of it is a file' >&2; exit 1; }
done
exec tar -x -f - --no-same-owner
"""
"""Unpacks one file below a folder. `tar` alone would put it in the place of an empty folder, or a folder of its path
in the place of a file, and so lose what was there."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The folders of the host that a backend works with."""

    runtime: Path
    """The server's own, gone with it; its name is the server's id."""
    handlers: Mapping[str, Path]
    """The handler folder of each language."""
    environments: Path
    tools: Path


@dataclass(frozen=True, slots=True)
class Check:
    """One row of `doctor`: something that works, works partly, or does not."""

    name: str
    state: Literal["ok", "degraded", "missing"]
    detail: str
    mend: str = ""
    """The command or the step that mends it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How often a sandbox ran into its limits since it was made, counted by the engine, outside the sandbox."""

    oom_kills: int = 0
    pids_refused: int = 0
    disk_full: bool = False


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

    async def kill(self) -> None:
        """Ends the process group at once."""
        await self.signal(signal.SIGKILL)


class Sandbox(ABC):
    """One isolated file system and process space, owned by the scope that opened it."""

    id: str
    policy: Policy

    @abstractmethod
    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR) -> Process:
        """Starts a process; `env` is its whole environment.

        Raises `StartFailed` when the program cannot be started and `SandboxLost` when the sandbox is gone.
        """

    @abstractmethod
    async def listen(self) -> socket.socket:
        """A TCP socket that listens on the sandbox's own loopback; who accepts on it is all the sandbox can reach."""

    @abstractmethod
    async def usage(self) -> Usage:
        """The limits that were hit so far."""

    @abstractmethod
    async def kill(self) -> None:
        """Ends every process of the sandbox; the sandbox is of no use afterwards."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether processes can still be started in it."""

    @abstractmethod
    async def list_files(self) -> Files:
        """The regular files below the working directory, at most 10,000 entries looked at.

        Hidden ones, those in `node_modules` and `__pycache__`, and names that are not UTF-8 do not count.
        """

    async def run(
        self, argv: Sequence[str], env: Mapping[str, str], *, stdin: AsyncIterator[bytes] | None = None
    ) -> Completed:
        """Runs a command to its end, its input fed and both its outputs drained at once, up to 1 MiB kept of each."""
        outputs = bytearray(), bytearray()
        async with await self.spawn(argv, env) as process:
            async with open_tasks() as tasks:
                tasks.start_soon(_drain, process.stdout, outputs[0])
                tasks.start_soon(_drain, process.stderr, outputs[1])
                await _feed(process.stdin, stdin)
            exit_code = await process.wait()
        return Completed(exit_code, *map(bytes, outputs))

    async def empty(self, folder: str) -> None:
        """Removes what is below a folder; no symbolic link is followed."""
        with _in_time("emptying a folder"):
            await self.run(("find", folder, "-mindepth", "1", "-delete"), {"PATH": PATH})

    async def copy_in(self, path: str, size: int, content: AsyncIterator[bytes]) -> None:
        """Writes one file below the working directory, its folders made as needed; no symbolic link is followed.

        Raises `BadPath` with the reason when it cannot be written, such as a full disk.
        """

        async def archive() -> AsyncIterator[bytes]:
            yield header(path, size)
            async for chunk in content:
                yield chunk
            yield padding(size) + END

        with _in_time():
            done = await self.run(("sh", "-c", _WRITE, "sh", WORKDIR, path), {"PATH": PATH}, stdin=archive())
        if done.exit_code != 0:
            full = f"the disk limit of {format_size(self.policy.disk)} is reached; delete files"
            reason = full if (await self.usage()).disk_full else f"{_first_line(done.stderr)}; choose another path"
            raise BadPath(f"path {quoted(path)} cannot be written: {reason}")

    async def copy_out(self, folder: str, names: Sequence[str], limit: int, take: TakeMember) -> None:
        """Gives each regular file below a folder to `take`; of one over `limit` bytes only name and size.

        What is not there, or not a regular file, is left out: the archive comes from inside and promises nothing.
        """
        left = list(names)
        with _in_time():
            while left:
                left = await self._copy_out_some(folder, left, limit, take)

    async def _copy_out_some(self, folder: str, names: list[str], limit: int, take: TakeMember) -> list[str]:
        """Copies up to the first file that is too large, and gives the names that are left."""
        # Of a file with two names, the second would come as a link.
        form = ("--format=gnu", "--hard-dereference", "--no-recursion")
        argv = ("tar", "-c", "-f", "-", *form, "-C", folder, "--null", "-T", "-")
        reader = ArchiveReader(limit)
        # All files together fit the disk; a stream of more is zeros of sparse files, of which there could be any.
        budget = 2 * self.policy.disk
        async with await self.spawn(argv, {"PATH": PATH}) as process, open_tasks() as tasks:
            tasks.start_soon(_drain, process.stderr, bytearray())
            tasks.start_soon(_feed, process.stdin, _once(b"".join(os.fsencode(name) + b"\0" for name in names)))
            async for chunk in process.stdout:
                for member in reader.feed(chunk):
                    await take(member)
                    if member.size > limit:
                        tasks.cancel_scope.cancel()
                        # Not read to its end, which may be holes: from one that was not asked for, nothing follows.
                        return names[names.index(member.name) + 1 :] if member.name in names else []
                budget -= len(chunk)
                if reader.malformed or budget < 0:
                    break
            tasks.cancel_scope.cancel()
        return []


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _feed(stdin: ByteSendStream, chunks: AsyncIterator[bytes] | None) -> None:
    """Writes all chunks and closes; a reader that went away ends it early."""
    try:
        if chunks is not None:
            async for chunk in chunks:
                await stdin.send(chunk)
    except anyio.BrokenResourceError:
        pass
    finally:
        await stdin.aclose()


async def _drain(stream: ByteReceiveStream, kept: bytearray) -> None:
    async for chunk in stream:
        kept += chunk[: max(0, _COMMAND_OUTPUT - len(kept))]


@contextmanager
def _in_time(what: str = "copying") -> Iterator[None]:
    """Bounds what tools of ours do: code that runs in the sandbox can stop them, or write in their name for ever."""
    with anyio.move_on_after(COPY_SECONDS) as scope:
        yield
    if scope.cancelled_caught:
        raise Unavailable(f"{what} took longer than {COPY_SECONDS:g} s; stop what runs in the session, or reset it")


def _first_line(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip() and _SUMMARY not in line]
    return lines[0][-200:] if lines else "no reason given"


class Backend(ABC):
    """Makes sandboxes on one engine; an async context manager in whose scope the engine's own resources live."""

    name: str

    @abstractmethod
    async def probe(self) -> list[Check]:
        """What works here, what is degraded and what is missing; never raises for a missing engine."""

    @abstractmethod
    def sandbox(self, policy: Policy) -> AbstractAsyncContextManager[Sandbox]:
        """Opens a sandbox that lives as long as the scope.

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
