"""A backend from another package, as small as possible: each sandbox is a folder, its processes run on this machine.

It isolates nothing and limits nothing; it shows what an engine has to do, and is only for tests.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream

from llm_sandbox_mcp.backends import base, settings
from llm_sandbox_mcp.backends.base import Check, Fullness, Surroundings, Usage
from llm_sandbox_mcp.backends.layout import HANDLERS, HOME, WORKDIR
from llm_sandbox_mcp.backends.listening import Listener, listen_on, port_refused
from llm_sandbox_mcp.base.errors import SandboxLost, StartFailed
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.toml.model import Section


class Plain(Section):
    """Its table in a profile."""

    umask: int = 0o022


class Settings(settings.Settings):
    """The settings that it reads from the profile."""

    plain: Plain = Plain()


def create(settings: Settings, surroundings: Surroundings) -> "PlainBackend":
    """Makes the backend."""
    return PlainBackend(settings.plain, surroundings)


class PlainBackend(base.Backend):
    """Makes a folder for each sandbox."""

    name = "plain"

    def __init__(self, settings: Plain, surroundings: Surroundings) -> None:
        self._settings = settings
        self._surroundings = surroundings

    async def __aenter__(self) -> "PlainBackend":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def limits(self) -> Check:
        return self._surroundings.held(Check("limits", "degraded", "no limit holds", "use another backend"))

    async def probe(self) -> list[Check]:
        about = Check("plain", "degraded", "sandboxes are folders, which keeps nothing in", "use another backend")
        return [about, await self.limits()]

    async def sweep(self) -> int:
        return 0

    @asynccontextmanager
    async def sandbox(
        self, policy: Policy, image: str = "", zygote: base.Zygote | None = None, layer: base.Layer | None = None
    ) -> AsyncIterator[base.Sandbox]:
        number = os.urandom(8).hex()
        folder = self._surroundings.runtime / "plain" / number
        places = {WORKDIR: folder / "sandbox", HOME: folder / "home"}
        for place in places.values():
            place.mkdir(parents=True)
        places |= {f"{HANDLERS}/{name}": path for name, path in self._surroundings.handlers.items()}
        sandbox = PlainSandbox(number, policy, places, self._settings)
        try:
            yield sandbox
        finally:
            with anyio.CancelScope(shield=True):
                await sandbox.kill()
                await anyio.to_thread.run_sync(shutil.rmtree, folder)


class PlainSandbox(base.Sandbox):
    """A folder, and the processes that were started in it."""

    image = ""
    alive = True

    def __init__(self, number: str, policy: Policy, places: Mapping[str, Path], settings: Plain) -> None:
        self.id = number
        self.policy = policy
        self._places = {name: str(path) for name, path in places.items()}
        self._names = re.compile(rf"(?<![\w/.])({'|'.join(map(re.escape, places))})(?=\b)")
        self._settings = settings
        self._processes: list[PlainProcess] = []

    async def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str = WORKDIR, *, closes_input: bool = False
    ) -> base.Process:
        if not self.alive:
            raise SandboxLost("the sandbox has ended")
        if "/" not in argv[0] and shutil.which(argv[0], path=env.get("PATH", "")) is None:
            raise StartFailed(f"cannot start {argv[0]}: there is no such program")
        try:
            started = await anyio.open_process(
                [self._real(word) for word in argv],
                stdin=subprocess.PIPE,
                env={name: self._real(value) for name, value in env.items()},
                cwd=self._real(cwd),
                start_new_session=True,
                umask=self._settings.umask,
            )
        except (OSError, ValueError) as error:
            raise StartFailed(f"cannot start {argv[0]}: {error}") from error
        process = PlainProcess(self, started)
        self._processes.append(process)
        return process

    @asynccontextmanager
    async def _listen(self, port: int) -> AsyncIterator[Listener]:
        await anyio.lowlevel.checkpoint()
        listening = socket.socket()
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            listening.close()
            raise port_refused(port, error.errno or 0) from error
        listening.listen()
        async with listen_on(listening) as listener:
            yield listener

    def listen(self, port: int = 0) -> AbstractAsyncContextManager[Listener]:
        return self._listen(port)

    async def usage(self) -> Usage:
        return Usage()

    async def fullness(self, *, thorough: bool) -> Fullness:
        return Fullness()

    async def kill(self) -> None:
        self.alive = False
        for process in self._processes:
            await process.kill()
            await process.ended()

    def _real(self, text: str) -> str:
        return self._names.sub(lambda found: self._places[found[0]], text)


class PlainProcess(base.Process):
    """One process, in its own process session."""

    def __init__(self, sandbox: PlainSandbox, process: anyio.abc.Process) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._sandbox = sandbox
        self._process = process
        self.stdin = _Input(process.stdin)
        self.stdout, self.stderr = _Output(process.stdout), _Output(process.stderr)

    async def wait(self) -> int:
        code = await self.ended()
        if not self._sandbox.alive:
            raise SandboxLost("the sandbox has ended")
        return code

    async def ended(self) -> int:
        """Waits for the exit code, even if the sandbox has ended."""
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        await anyio.lowlevel.checkpoint()

    async def settle(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.kill()
            await self._process.aclose()


class _Output(ByteReceiveStream):
    """Reads nothing for a caller that is cancelled, because the data would be lost."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self._stream = stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint_if_cancelled()
        return await self._stream.receive(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Input(ByteSendStream):
    """Raises the same error whenever the process does not read any more."""

    def __init__(self, stream: ByteSendStream) -> None:
        self._stream = stream

    async def send(self, item: bytes) -> None:
        try:
            await self._stream.send(item)
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        with suppress(OSError):
            await self._stream.aclose()
