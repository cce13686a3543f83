"""A living sandbox: processes are started in it by its PID 1, over one packet socket."""

import itertools
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from ...errors import SandboxLost, StartFailed
from ...policy import Policy
from ..base import WORKDIR, Files, Process, Sandbox, Usage
from .descriptors import PacketSocket, PipeReader, PipeWriter
from .scanning import scan

_SPAWN_BYTES = 128 << 10
"""Bytes of one request to start a process; the kernel bounds a packet at a little over that."""


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
        self.start_error = 0
        self.exit_code: int | None = None

    async def wait(self) -> int:
        await self.ended.wait()
        if self.exit_code is None:
            raise SandboxLost("the sandbox ended while its code ran; run again in a new session")
        return self.exit_code

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    async def signal(self, number: signal.Signals) -> None:
        if not self.ended.is_set():
            await self._sandbox.request(b"K", self.name, b"%d" % number)

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.kill()
            for stream in (self.stdin, self.stdout, self.stderr):
                await stream.aclose()


@dataclass(slots=True)
class _Answer:
    there: anyio.Event = field(default_factory=anyio.Event)
    listener: socket.socket | None = None


class EmbeddedSandbox(Sandbox):
    """A bubblewrap with our own PID 1."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        control: socket.socket,
        usage: Callable[[], Awaitable[tuple[int, int]]],
        kill: Callable[[], Awaitable[None]],
        owner: int | None = None,
    ) -> None:
        self.id = name
        self.policy = policy
        self.up = anyio.Event()
        """Set when PID 1 is there, or when it is certain that it never will be."""
        self._control = PacketSocket(control)
        self._counters = usage
        self._end = kill
        self._owner = owner
        self._names = itertools.count(1)
        self._processes: dict[bytes, EmbeddedProcess] = {}
        self._listeners: dict[bytes, _Answer] = {}
        self._directories: list[int] = []
        self._lost = False

    @property
    def alive(self) -> bool:
        return not self._lost

    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR) -> Process:
        name = b"%d" % next(self._names)
        words = [*argv, *(f"{key}={value}" for key, value in env.items())]
        fields = [os.fsencode(word) for word in words]
        if any(b"\0" in field for field in fields) or sum(map(len, fields)) > _SPAWN_BYTES:
            raise StartFailed(f"cannot start {argv[0]}: its arguments contain NUL or exceed {_SPAWN_BYTES} bytes")
        theirs, ours = _pipes(self._owner)
        process = EmbeddedProcess(name, self, ours)
        self._processes[name] = process
        try:
            await self.request(b"S", name, os.fsencode(cwd), b"%d" % len(argv), *fields, descriptors=theirs)
            for descriptor in theirs:
                os.close(descriptor)
            theirs = ()
            await process.started.wait()
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
            if fields[0] != b"K":
                raise self._gone() from None

    async def listen(self) -> socket.socket:
        """A TCP socket that listens on the sandbox's own loopback; who accepts on it is all the sandbox can reach."""
        name = b"%d" % next(self._names)
        answer = self._listeners[name] = _Answer()
        try:
            await self.request(b"L", name)
            await answer.there.wait()
        finally:
            del self._listeners[name]
        if answer.listener is None:
            raise self._gone()
        return answer.listener

    async def usage(self) -> Usage:
        oom_kills, pids_refused = await self._counters()
        return Usage(oom_kills, pids_refused, any(map(_is_full, self._directories)))

    async def list_files(self) -> Files:
        # From outside, over the directory that PID 1 handed out: no process, and no link is followed.
        return scan(self._directories[0]) if self._directories else {}

    async def kill(self) -> None:
        await self._end()

    async def serve(self) -> None:
        """Takes PID 1's reports until it is gone; the backend runs this beside the sandbox."""
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
            # A packet that PID 1 would not send costs the sandbox that sent it, never the server.
            self._lose()

    def close(self) -> None:
        """Lets go of the sandbox's descriptors."""
        self._control.close()
        for descriptor in self._directories:
            os.close(descriptor)
        self._directories = []

    def _take(self, kind: bytes, fields: list[bytes], descriptors: list[int]) -> None:
        if kind == b"R":
            self._directories, descriptors[:] = [*descriptors], []
            self.up.set()
        elif kind == b"L":
            listener = socket.socket(fileno=descriptors.pop())
            answer = self._listeners.get(fields[0])
            if answer is None:
                listener.close()
            else:
                listener.setblocking(False)
                answer.listener = listener
                answer.there.set()
        elif (process := self._processes.get(fields[0])) is not None:
            if kind == b"X":
                process.exit_code = int(fields[1])
                process.ended.set()
                del self._processes[fields[0]]
            elif kind == b"F":
                process.start_error = int(fields[1])
                process.ended.set()
                del self._processes[fields[0]]
            process.started.set()

    def _lose(self) -> None:
        self._lost = True
        self.up.set()
        for process in self._processes.values():
            process.started.set()
            process.ended.set()
        self._processes.clear()
        for answer in self._listeners.values():
            answer.there.set()

    def _gone(self) -> SandboxLost:
        return SandboxLost("the sandbox is gone; open a new session")


def _pipes(owner: int | None) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Three pipes: the ends for the process, and ours.

    They are the sandbox's uid's own, or `> /dev/stderr`, which opens the pipe anew, would be refused.
    """
    made: list[int] = []
    try:
        for _ in range(3):
            made += os.pipe()
            if owner is not None:
                os.fchown(made[-1], owner, owner)
    except OSError as error:
        for descriptor in made:
            os.close(descriptor)
        raise StartFailed(
            f"cannot start a process: {error.strerror}; raise the open files limit (ulimit -n)"
        ) from error
    return (made[0], made[3], made[5]), (made[1], made[2], made[4])


def _is_full(directory: int) -> bool:
    state = os.fstatvfs(directory)
    return state.f_bavail == 0 or state.f_favail == 0
