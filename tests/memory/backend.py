"""A backend in memory: its processes are tasks, and the code of its only language lists the events of a run.

It runs no real code. Use it to test everything above an engine, in milliseconds and on a clock that jumps.
"""

import asyncio
import math
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from llm_sandbox_mcp.aio.tasks import open_tasks
from llm_sandbox_mcp.backends.base import Backend, Check, Fullness, Layer, Process, Sandbox, Usage, Zygote
from llm_sandbox_mcp.backends.layout import WORKDIR
from llm_sandbox_mcp.backends.listening import Listener
from llm_sandbox_mcp.backends.listing import Files, Stamp
from llm_sandbox_mcp.base.errors import ListeningFailed, SandboxError, SandboxLost, StartFailed
from llm_sandbox_mcp.base.messages import Problem
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.wiring import open_service

from .clock import JumpingLoop
from .script import Runner

HANDLERS = Path(__file__).with_name("handlers")
"""The folder of the language `script`, for `[handlers]` of a profile."""

_PIPE = 16
"""Pieces that a stream buffers before its writer waits for its reader."""

ANSWER = 20.0
"""Seconds until a sandbox that does not answer returns its last counts."""

Program = Callable[["MemoryProcess"], Awaitable[int]]
"""What a process does; returns its exit code."""


async def true(process: "MemoryProcess") -> int:
    """Does nothing."""
    await anyio.lowlevel.checkpoint()
    return 0


async def script(process: "MemoryProcess") -> int:
    """The runner of the language `script`."""
    return await Runner(process).serve()


PROGRAMS: Mapping[str, Program] = {"true": true, "script": script}


@asynccontextmanager
async def open_in_memory(profile: Profile, engine: "MemoryBackend") -> AsyncIterator[Service]:
    """A service on this backend, whatever engine the profile names; a jumping clock waits for worker threads."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, JumpingLoop):
        await loop.wait_for_threads()
    async with open_service(profile, make=lambda *_: engine) as service:
        yield service


class MemoryBackend(Backend):
    """Makes sandboxes that consist only of their processes."""

    name = "memory"

    def __init__(self, programs: Mapping[str, Program] = PROGRAMS) -> None:
        self.programs = programs
        self.live: dict[str, MemorySandbox] = {}
        """The sandboxes that exist now."""
        self.made = 0
        self.forks = False
        self.failure: SandboxError | None = None
        """The error that making a sandbox raises; None for success."""
        self.delay = 0.0
        """Seconds that it takes to make a sandbox, and to end one."""

    async def __aenter__(self) -> "MemoryBackend":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert not self.live

    async def limits(self) -> Check:
        return Check("limits", "ok", "there is nothing to limit")

    async def probe(self) -> list[Check]:
        return [Check("memory", "ok", "runs no code")]

    async def sweep(self) -> int:
        return 0

    @asynccontextmanager
    async def sandbox(
        self, policy: Policy, image: str = "", zygote: Zygote | None = None, layer: Layer | None = None
    ) -> AsyncIterator[Sandbox]:
        self.made += 1
        await anyio.sleep(self.delay)
        if self.failure is not None:
            raise self.failure
        async with open_tasks() as tasks:
            sandbox = MemorySandbox(f"memory-{self.made}", policy, self.programs, tasks)
            sandbox.zygote = zygote if self.forks else None
            self.live[sandbox.id] = sandbox
            try:
                yield sandbox
            finally:
                await sandbox.kill()
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(self.delay)
                for process in sandbox.processes:
                    process.close()
                del self.live[sandbox.id]
                tasks.cancel_scope.cancel()


class MemorySandbox(Sandbox):
    """One sandbox; the code in it sets what is counted."""

    image = ""

    def __init__(self, number: str, policy: Policy, programs: Mapping[str, Program], tasks: TaskGroup) -> None:
        self.id = number
        self.policy = policy
        self.files: dict[str, Stamp] = {}
        self.used = Usage(cpu=0.0)
        self.full = Fullness()
        self.answers = True
        """Whether it reports its counts at once; otherwise the last counts are returned after `ANSWER` seconds."""
        self.silent: Problem | None = None
        """Why its engine passes nothing on; see `fall_silent`."""
        self.heard = anyio.Event()
        """Set while the engine passes on what is printed."""
        self.heard.set()
        self._unheard: list[Callable[[], None]] = []
        """Signals that the engine has not passed on yet."""
        self.processes: list[MemoryProcess] = []
        self._programs = programs
        self._tasks = tasks
        self._alive = True

    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, *, closes_input: bool = False
    ) -> Process:
        await anyio.lowlevel.checkpoint()
        if not self._alive:
            raise SandboxLost("the sandbox has ended")
        program = self._programs.get(argv[0])
        if program is None:
            raise StartFailed(f"cannot start {argv[0]}: no such program")
        process = MemoryProcess(self, argv, env)
        if self.zygote is not None and self.zygote.equals(argv, env):
            process.modules, self.zygote = self.zygote.modules, None
        self.processes.append(process)
        self._tasks.start_soon(process.run, program)
        return process

    async def silence(self) -> Problem | None:
        await anyio.lowlevel.checkpoint()
        return self.silent

    def fall_silent(self) -> None:
        """From now on, neither output nor signals are passed on, while the processes go on."""
        self.silent, self.heard = Problem("memory does not answer", "wait"), anyio.Event()

    def speak(self) -> None:
        """Passes everything on again, and first what came meanwhile."""
        self.silent, unheard, self._unheard = None, self._unheard, []
        self.heard.set()
        for signalled in unheard:
            signalled()

    def pass_on(self, signalled: Callable[[], None]) -> None:
        """Sends a signal once the engine does not keep silent."""
        if self.silent:
            self._unheard.append(signalled)
        else:
            signalled()

    def listen(self, port: int = 0) -> AbstractAsyncContextManager[Listener]:
        raise ListeningFailed("a sandbox in memory has no network", "use another backend")

    async def usage(self) -> Usage:
        await anyio.sleep(0 if self.answers else ANSWER)
        return self.used

    async def fullness(self, *, thorough: bool) -> Fullness:
        await anyio.lowlevel.checkpoint()
        return self.full

    async def list_files(self) -> Files:
        await anyio.lowlevel.checkpoint()
        return dict(self.files)

    async def lacking(self, programs: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
        return [name for name in programs if name not in self._programs]

    async def kill(self) -> None:
        self._alive = False
        for process in self.processes:
            process.end(None)

    @property
    def alive(self) -> bool:
        return self._alive


class MemoryProcess(Process):
    """One process, which is a task; `receive` and `print` are for the program, everything else is for its starter."""

    def __init__(self, sandbox: MemorySandbox, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.sandbox = sandbox
        self.argv = tuple(argv)
        self.env = dict(env)
        self.modules: Sequence[str] = ()
        """What it has imported when it starts."""
        self.interrupted: Callable[[], None] | None = None
        """Called on an interrupt; None means that an interrupt ends the process."""
        pipes = {name: _Pipe() for name in ("stdin", "stdout", "stderr")}
        self._stdin = pipes["stdin"]
        self._outputs = {name: pipes[name] for name in ("stdout", "stderr")}
        self.stdin = _Sender(pipes["stdin"].send)
        self.stdout, self.stderr = _Receiver(pipes["stdout"].receive), _Receiver(pipes["stderr"].receive)
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._exit_code: int | None = None

    async def run(self, program: Program) -> None:
        """Runs the process to its end."""
        code: int | None = None
        with self._scope:
            code = await program(self)
        self.end(code)

    async def receive(self) -> bytes:
        """The next piece of input; raises `anyio.EndOfStream` after the last one."""
        return await self._stdin.receive.receive()

    async def print(self, data: bytes, stream: str = "stdout") -> None:
        """Prints to one of its outputs, and waits while the buffer is full."""
        await self.sandbox.heard.wait()
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._outputs[stream].send.send(data)

    def end(self, code: int | None) -> None:
        """Ends it with that exit code; None means that it was killed."""
        if self._ended.is_set():
            return
        self._exit_code = 128 + signal.SIGKILL if code is None else code
        self._ended.set()
        self._scope.cancel()
        self._stdin.receive.close()
        for pipe in self._outputs.values():
            pipe.send.close()

    async def wait(self) -> int:
        await self._ended.wait()
        if not self.sandbox.alive:
            raise SandboxLost("the sandbox has ended")
        assert self._exit_code is not None
        return self._exit_code

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    async def signal(self, number: signal.Signals) -> None:
        await anyio.lowlevel.checkpoint()
        if not self.sandbox.alive:
            raise SandboxLost("the sandbox has ended")
        interrupted = self.interrupted if number == signal.SIGINT else None
        self.sandbox.pass_on(interrupted or partial(self.end, 128 + number))

    async def silence(self) -> Problem | None:
        return await self.sandbox.silence()

    async def settle(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.close()
        await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        """Ends it, and closes the remaining ends of its streams."""
        self.end(None)
        self._stdin.send.close()
        for pipe in self._outputs.values():
            pipe.receive.close()


class _Pipe:
    def __init__(self) -> None:
        streams = anyio.create_memory_object_stream[bytes](_PIPE)
        self.send: MemoryObjectSendStream[bytes] = streams[0]
        self.receive: MemoryObjectReceiveStream[bytes] = streams[1]


class _Sender(ByteSendStream):
    def __init__(self, stream: MemoryObjectSendStream[bytes]) -> None:
        self._stream = stream

    async def send(self, item: bytes) -> None:
        try:
            await self._stream.send(bytes(item))
        except anyio.ClosedResourceError as error:  # with its sandbox, by another task
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._stream.close()


class _Receiver(ByteReceiveStream):
    def __init__(self, stream: MemoryObjectReceiveStream[bytes]) -> None:
        self._stream = stream
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = self._rest or await self._stream.receive()
        limit = max_bytes if max_bytes > 0 else math.inf
        self._rest = data[int(min(len(data), limit)) :]
        return data[: len(data) - len(self._rest)]

    async def aclose(self) -> None:
        self._stream.close()
