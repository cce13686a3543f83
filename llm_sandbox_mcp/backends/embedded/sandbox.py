"""A running sandbox: its PID 1 starts processes in it, on requests over one packet socket."""

import itertools
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio

from ...base.errors import SandboxLost, StartFailed, Unavailable
from ...base.policy import Policy
from ..base import OWN_ENTRIES, Fullness, Layer, Process, Sandbox, Usage
from ..copying import in_time
from ..layout import ENVIRONMENTS, PATH, TOOLS, WORKDIR
from ..listening import Listener, listen_on, port_refused
from ..listing import LIST, Files, read_list
from ..scanning import Folders
from .descriptors import PacketSocket, PipeReader, PipeWriter

_SPAWN_BYTES = 128 << 10
"""The most bytes of one request to start a process; the kernel's limit for a packet is a little higher."""
_OWN_ENTRIES_OF_OVERLAY = 5
"""Entries in the file system that an overlay writes to, although nothing was written yet."""
_AT_ONCE = 100
"""Entries listed without a worker thread: no file is on a disk, and every run of a program waits for two lists."""
_LISTING = 5.0
"""Seconds to list all files if a process in the sandbox has to do it."""
_SETTLED = 20.0
"""Seconds for PID 1 to confirm that all earlier requests are done."""
_STARTING, _WORK = 5.0, 0.02
"""Seconds for a process to run its program, a hundred times what that takes on a busy machine; and how much processor
time that can take, of which it gets as little as each of the processes that the sandbox may have."""


class EmbeddedProcess(Process):
    """A process that PID 1 of a sandbox started."""

    stdout: PipeReader
    stderr: PipeReader
    stdin: PipeWriter

    def __init__(self, name: bytes, sandbox: "EmbeddedSandbox", pipes: tuple[int, int, int]) -> None:
        self.name = name
        self._sandbox = sandbox
        self.stdin = PipeWriter(pipes[0])
        self.stdout = PipeReader(pipes[1])
        self.stderr = PipeReader(pipes[2])
        self.started = anyio.Event()
        self.ended = anyio.Event()
        self.settled = anyio.Event()
        """Set when PID 1 confirms that all earlier requests are done, and when no confirmation will come."""
        self.start_error = 0
        self.exit_code: int | None = None

    async def wait(self) -> int:
        await self.ended.wait()
        if self.exit_code is None:
            raise SandboxLost("the sandbox ended while its code ran", "run again in a new session")
        return self.exit_code

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    async def signal(self, number: signal.Signals) -> None:
        if not self.ended.is_set():
            await self._sandbox.request(b"K", self.name, b"%d" % number)

    async def settle(self) -> None:
        if self.ended.is_set():
            return
        self.settled = anyio.Event()
        with anyio.move_on_after(_SETTLED):
            await self._sandbox.request(b"A", self.name)
            await self.settled.wait()

    def over(self) -> None:
        """Wakes all tasks that wait for a report about this process: no more will come."""
        for awaited in (self.started, self.settled, self.ended):
            awaited.set()

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.kill()
            self.close_streams()

    def close_streams(self) -> None:
        """Closes our ends of its streams."""
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self._sandbox.processes.discard(self)


@dataclass(slots=True)
class _Answer:
    there: anyio.Event = field(default_factory=anyio.Event)
    listener: socket.socket | None = None
    error: int = 0


class EmbeddedSandbox(Sandbox):
    """A bubblewrap with our own PID 1."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        control: socket.socket,
        usage: Callable[[], Awaitable[Usage]],
        kill: Callable[[], Awaitable[None]],
        closing: anyio.CapacityLimiter,
        *,
        forked: bool = False,
        layer: Layer | None = None,
    ) -> None:
        self.id = name
        self.policy = policy
        self.image = ""
        self.layer = layer
        self.forked = forked
        """Whether it is a fork of a zygote."""
        self.up = anyio.Event()
        """Set when PID 1 is up, or when it is certain that it never will be."""
        self._control = PacketSocket(control)
        self._counters = usage
        self._end = kill
        self._names = itertools.count(1)
        self._processes: dict[bytes, EmbeddedProcess] = {}
        self.processes: set[EmbeddedProcess] = set()
        """Processes whose streams are open. The owner of a process closes it; processes that live as long as the
        sandbox, such as runners, are closed with the sandbox."""
        self._listeners: dict[bytes, _Answer] = {}
        self._closing = closing
        self._folders = Folders((), closing)
        self.namespace = -1
        """A descriptor of its network namespace once it is up, if its policy has an open network."""
        self._lost = False

    @property
    def alive(self) -> bool:
        return not self._lost

    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, *, closes_input: bool = False
    ) -> Process:
        name = b"%d" % next(self._names)
        words = [*argv, *(f"{key}={value}" for key, value in env.items())]
        fields = [os.fsencode(word) for word in words]
        if any(b"\0" in field for field in fields) or sum(map(len, fields)) > _SPAWN_BYTES:
            raise StartFailed(f"cannot start {argv[0]}: its arguments contain NUL or exceed {_SPAWN_BYTES} bytes")
        theirs, ours = _pipes()
        process = EmbeddedProcess(name, self, ours)
        self._processes[name] = process
        self.processes.add(process)
        try:
            if self.zygote is not None and self.zygote.equals(argv, env):
                # Only once: one that is started later has to find the libraries as they are then.
                self.zygote = None
                await self.request(b"Z", name, os.fsencode(cwd), descriptors=theirs)
            else:
                await self.request(b"S", name, os.fsencode(cwd), b"%d" % len(argv), *fields, descriptors=theirs)
            for descriptor in theirs:
                os.close(descriptor)
            theirs = ()
            seconds = _STARTING + _WORK * self.policy.pids / self.policy.cpus
            with anyio.move_on_after(seconds) as limit:
                await process.started.wait()
            if limit.cancelled_caught:
                # Code has stopped it before it ran its program, and until then PID 1 can do nothing else.
                await self.kill()
                self._lose()
                raise SandboxLost(
                    f"no process started in the sandbox for {seconds:.0f} s, as when code stops each, so it was ended",
                    "run again",
                )
            if process.start_error:
                raise StartFailed(f"cannot start {argv[0]} in the sandbox: {os.strerror(process.start_error)}")
            if self._lost and not process.ended.is_set():
                raise self._gone()
        except BaseException:
            for descriptor in theirs:
                os.close(descriptor)
            await process.aclose()
            raise
        return process

    async def request(self, *fields: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Sends one request to PID 1; `SandboxLost` when it is gone."""
        try:
            await self._control.send(b"\0".join(fields), descriptors)
        except anyio.BrokenResourceError:
            if fields[0] not in (b"K", b"A", b"H", b"C"):
                raise self._gone() from None

    @asynccontextmanager
    async def paused(self, code: Collection[Process]) -> AsyncIterator[None]:
        try:
            await self.request(b"H", b"", *(process.name for process in self.processes if process in code))
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self.request(b"C", b"")

    @asynccontextmanager
    async def listen(self, port: int = 0) -> AsyncIterator[Listener]:
        async with listen_on(await self._listening_socket(port)) as listener:
            yield listener

    async def _listening_socket(self, port: int) -> socket.socket:
        name = b"%d" % next(self._names)
        answer = self._listeners[name] = _Answer()
        try:
            await self.request(b"L", name, b"%d" % port)
            await answer.there.wait()
        except BaseException:
            # Cancelled in the same turn of the event loop in which the answer came: nothing else would close it.
            if answer.listener is not None:
                answer.listener.close()
            raise
        finally:
            del self._listeners[name]
        if answer.error:
            raise port_refused(port, answer.error)
        if answer.listener is None:
            raise self._gone()
        return answer.listener

    async def usage(self) -> Usage:
        return await self._counters()

    async def fullness(self, *, thorough: bool) -> Fullness:
        return await self._folders.fullness(self.policy, thorough=thorough)

    async def new_outside(self) -> Sequence[str]:
        return await self._folders.new_outside()

    async def list_files(self) -> Files:
        # Reads from outside, through the descriptor that PID 1 handed out: this needs no process and follows no link.
        refused: list[str] = []
        files: Files = await self._folders.list_files(refused, at_once=_AT_ONCE)
        if refused:
            # Only the sandbox's own uid may read these folders, so a process in the sandbox lists the files.
            with suppress(SandboxLost, StartFailed, Unavailable):
                async with in_time(self, seconds=_LISTING):
                    files = {**read_list((await self.run(["/bin/sh", "-c", LIST], {"PATH": PATH})).stdout), **files}
        return files

    async def lacking(self, programs: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
        # Programs below /usr are the same inside and outside; the other folders are ours and are always mounted.
        others = [name for name in programs if not name.startswith((f"{ENVIRONMENTS}/", f"{TOOLS}/"))]
        return [name for name in others if not shutil.which(name, path=PATH)]

    async def kill(self) -> None:
        await self._end()

    async def serve(self) -> None:
        """Handles PID 1's reports until it is gone; the backend runs this in the background while the sandbox lives."""
        try:
            while True:
                packet, descriptors = await self._control.receive()
                kind, *fields = packet.split(b"\0")
                try:
                    self._take(kind, fields, descriptors)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
        except (anyio.EndOfStream, ValueError, IndexError):
            # A packet that PID 1 would never send ends the sandbox that sent it, not the server.
            self._lose()

    async def close(self) -> None:
        """Closes the sandbox's descriptors."""
        self._control.close()
        for process in list(self.processes):
            process.close_streams()
        if self.namespace >= 0:
            os.close(self.namespace)
        self.namespace = -1
        await self._folders.close()

    def _take(self, kind: bytes, fields: list[bytes], descriptors: list[int]) -> None:
        if kind == b"R":
            own = OWN_ENTRIES if self.layer is None else _OWN_ENTRIES_OF_OVERLAY
            folders = Folders(descriptors[:-1], self._closing, own_entries=own)
            self._folders, descriptors[:] = folders, descriptors[-1:]
            if self.policy.network.mode == "open":
                self.namespace = descriptors.pop()
            self.up.set()
        elif kind == b"L":
            answer = self._listeners.get(fields[0])
            listener = socket.socket(fileno=descriptors.pop()) if descriptors else None
            if answer is not None:
                answer.listener, answer.error = listener, int(fields[1]) if listener is None else 0
                answer.there.set()
            elif listener is not None:
                listener.close()
        elif (process := self._processes.get(fields[0])) is not None:
            if kind == b"X":
                code = int(fields[1])
                process.exit_code, process.signalled = code if code >= 0 else 128 - code, code < 0
                process.over()
                del self._processes[fields[0]]
            elif kind == b"A":
                process.settled.set()
            elif kind == b"F":
                process.start_error = int(fields[1])
                process.over()
                del self._processes[fields[0]]
            process.started.set()

    def _lose(self) -> None:
        self._lost = True
        self.up.set()
        for process in self._processes.values():
            process.over()
        self._processes.clear()
        for answer in self._listeners.values():
            answer.there.set()

    def _gone(self) -> SandboxLost:
        return SandboxLost("the sandbox is gone", "open a new session")


def _pipes() -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Three pipes: the ends for the process, and our ends.

    Any uid that has one of them may open it: otherwise `> /dev/stderr`, which opens the pipe again, would be refused.
    """
    made: list[int] = []
    try:
        for _ in range(3):
            made += os.pipe()
            os.fchmod(made[-1], 0o666)
    except OSError as error:
        for descriptor in made:
            os.close(descriptor)
        raise StartFailed(
            f"cannot start a process: {error.strerror}", "raise the open files limit (ulimit -n)"
        ) from error
    return (made[0], made[3], made[5]), (made[1], made[2], made[4])
