"""A process in a container, and how it is started there."""

import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

import anyio

from ...base.errors import SandboxLost, StartFailed
from ...base.messages import Problem
from ..base import Process
from ..layout import HOME, PATH, WORKDIR
from .container import Streams, lost_sandbox

_ARGUMENT_BYTES = 128 << 10
"""Maximum bytes of one argument; the kernel accepts no longer ones."""
_ALL_BYTES = 1 << 20

_COMPLAINT = 4096
"""Bytes of a failed command's output after which reading stops."""

_ID = 8
"""Maximum digits of a process id."""

_NO_PATH = "/nonexistent"
"""The search path if PATH is not set: then a program must be named by its full path."""

_WRITABLE = (f"{WORKDIR}/", f"{HOME}/", "/tmp/")

_START = """\
cd "$1" || { echo '!'; exit; }
case $3 in
  */*) [ -f "$3" ] && [ -x "$3" ] ;;
  *) (IFS=:; for folder in $2; do [ -f "$folder/$3" ] && [ -x "$folder/$3" ] && exit; done; exit 1) ;;
esac || { echo -; exit; }
shift 3
echo $$
exec /usr/bin/env "$@"
"""


def search_path(image: str) -> str:
    """The search path for programs: the folders that an image sets, and the usual ones."""
    # Folders that code can write, including relative ones, are left out, so that code cannot replace a program.
    folders = [
        folder for folder in image.split(":") if folder.startswith("/") and not f"{folder}/".startswith(_WRITABLE)
    ]
    return ":".join(dict.fromkeys([*folders, *PATH.split(":")]))


def environment(env: Mapping[str, str], prefix: Sequence[str]) -> list[str]:
    """Arguments for `env` that set exactly these variables; with a prefix, other variables are kept.

    A prefix also gets the variables that the image sets, and a writable home, so that it can find and store its files.
    """
    words = [f"{key}={value}" for key, value in env.items()]
    return [f"HOME={HOME}", *words] if prefix else ["-i", *words]


def starter(argv: Sequence[str], env: Mapping[str, str], cwd: str, prefix: Sequence[str] = ()) -> list[str]:
    """The command that turns into this process, after the words of a prefix; the first line that it prints is its id.

    It prints a dash instead if the program does not exist, and `!` if the reason is on standard error.

    Raises `StartFailed` for arguments that no process can take.
    """
    argv = [*prefix, *argv]
    words = [cwd, env.get("PATH", _NO_PATH), argv[0], *environment(env, prefix), *argv]
    sizes = [len(word.encode(errors="surrogateescape")) for word in words]
    if any("\0" in word for word in words) or max(sizes) > _ARGUMENT_BYTES or sum(sizes) > _ALL_BYTES:
        raise StartFailed(f"cannot start {argv[0]}: its arguments contain NUL or exceed {_ARGUMENT_BYTES} bytes")
    return ["/bin/sh", "-c", _START, "sh", *words]


class Surrounding(Protocol):
    """The sandbox of a process, as far as the process needs it."""

    processes: set["ContainerProcess"]

    @property
    def origin(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    async def ending(self) -> bool: ...
    async def answers(self) -> bool: ...
    async def silence(self) -> Problem | None: ...
    async def signal(self, group: int, number: signal.Signals) -> None: ...


class ContainerProcess(Process):
    """A process that the engine started in a container, with its own connection."""

    def __init__(self, sandbox: Surrounding, streams: Streams) -> None:
        self._sandbox = sandbox
        self._streams = streams
        self.group = 0
        """The id of its process group, once it is known."""
        self._exit_code: int | None = None
        self.stdin = streams.stdin
        self.stdout = streams.stdout
        self.stderr = streams.stderr

    async def started(self, program: str) -> None:
        """Waits for the first line of `starter`'s command.

        Raises `StartFailed` if the program cannot be started; if nothing runs then, this process is closed already.
        """
        line = bytearray()
        try:
            while not line.endswith(b"\n") and len(line) <= _ID:
                line += await self._streams.stdout.receive(1)
        except anyio.EndOfStream:
            if await self._sandbox.ending():
                raise lost_sandbox() from None
            raise await self._refused(program) from None
        if line == b"!\n":
            raise await self._refused(program)
        if line == b"-\n":
            self.close()
            raise StartFailed(
                f"cannot start {program} in the sandbox: no such program in {self._sandbox.origin}",
                "name an image that has it, or build one: llm-sandbox-mcp images build",
            )
        if not line.strip().isdigit():
            if await self._sandbox.ending():
                raise lost_sandbox()
            raise StartFailed(
                f"cannot start {program} in the sandbox: code in the sandbox wrote in its name", "reset the session"
            )
        self.group = int(line)

    async def wait(self) -> int:
        if self._exit_code is None:
            while not self._streams.ended.is_set():
                await self._streams.take_in()
            code = await self._streams.exit_code()
            # The cause of its end may have ended the whole container. If that has its own kernel, as with gVisor, a
            # limit does this, and the exit code is then the runtime's.
            if code is None or not self._sandbox.alive or (code and not await self._sandbox.answers()):
                raise SandboxLost("the sandbox ended while its code ran", "run again in a new session")
            self._exit_code = code
        return self._exit_code

    @property
    def running(self) -> bool:
        return self._streams.look()

    async def signal(self, number: signal.Signals) -> None:
        if self.group and not self._streams.ended.is_set():
            await self._sandbox.signal(self.group, number)

    async def settle(self) -> None:
        # The agent handles requests in order: once it answers, it has sent the signals.
        await self._sandbox.answers()

    async def silence(self) -> Problem | None:
        return await self._sandbox.silence()

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.kill()
        self.close()

    def close(self) -> None:
        """Closes its streams, whether or not it has ended."""
        self._streams.close()
        self._sandbox.processes.discard(self)

    async def _refused(self, program: str) -> StartFailed:
        """The error with the output of its command."""
        await self.stdin.aclose()
        output = bytearray()
        for stream in (self._streams.stdout, self._streams.stderr):
            async for part in stream:
                output += part
                if len(output) > _COMPLAINT:
                    break  # no shell prints this much: it is code, which may go on forever
        self.close()
        reason = output.decode(errors="replace").strip()[-300:]
        return StartFailed(f"cannot start {program} in the sandbox: {reason or 'no reason given'}")
