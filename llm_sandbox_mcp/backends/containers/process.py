"""A process in a container, and how it is started there."""

import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from ...errors import SandboxLost, StartFailed
from ..base import Process
from ..layout import HOME, PATH, WORKDIR
from .container import Streams, lost_sandbox

if TYPE_CHECKING:
    from .sandbox import ContainerSandbox

_ARGUMENT_BYTES = 128 << 10
"""Of one word; the kernel takes no longer one."""
_ALL_BYTES = 1 << 20

_COMPLAINT = 4096
"""Bytes of what a command says before it ends, after which nobody listens any more."""

_ID = 8
"""Digits of the id of a process."""

_NO_PATH = "/nonexistent"
"""Without a search path a program has to be named by its own."""

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
    """Where programs are looked for: where an image says, and in the usual places."""
    # What code can write, as it can below a relative one, must not take the place of a program.
    folders = [
        folder for folder in image.split(":") if folder.startswith("/") and not f"{folder}/".startswith(_WRITABLE)
    ]
    return ":".join(dict.fromkeys([*folders, *PATH.split(":")]))


def environment(env: Mapping[str, str], prefix: Sequence[str]) -> list[str]:
    """How `env` is told what there is: no more than this, or for a prefix what it needs to find and keep things, too.

    That is what the image has set, and a home that can be written.
    """
    words = [f"{key}={value}" for key, value in env.items()]
    return [f"HOME={HOME}", *words] if prefix else ["-i", *words]


def starter(argv: Sequence[str], env: Mapping[str, str], cwd: str, prefix: Sequence[str] = ()) -> list[str]:
    """The command that becomes this process, behind the words of a prefix; the first line that it prints is its id.

    That is a dash instead where there is no such program, and `!` where what is wrong is told on standard error.

    Raises `StartFailed` for words that no process can be given.
    """
    argv = [*prefix, *argv]
    words = [cwd, env.get("PATH", _NO_PATH), argv[0], *environment(env, prefix), *argv]
    sizes = [len(word.encode(errors="surrogateescape")) for word in words]
    if any("\0" in word for word in words) or max(sizes) > _ARGUMENT_BYTES or sum(sizes) > _ALL_BYTES:
        raise StartFailed(f"cannot start {argv[0]}: its arguments contain NUL or exceed {_ARGUMENT_BYTES} bytes")
    return ["/bin/sh", "-c", _START, "sh", *words]


class ContainerProcess(Process):
    """A process that the engine started in a container, on a connection of its own."""

    def __init__(self, sandbox: "ContainerSandbox", streams: Streams) -> None:
        self._sandbox = sandbox
        self._streams = streams
        self._group = 0
        self._exit_code: int | None = None
        self.stdin = streams.stdin
        self.stdout = streams.stdout
        self.stderr = streams.stderr

    async def started(self, program: str) -> None:
        """Waits for the first line of `starter`'s command.

        Raises `StartFailed` when the program cannot be started; where nothing runs then, this is closed already.
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
                f"cannot start {program} in the sandbox: no such program in {self._sandbox.origin}; "
                "name an image that has it, or build one: llm-sandbox-mcp images build"
            )
        if not line.strip().isdigit():
            if await self._sandbox.ending():
                raise lost_sandbox()
            raise StartFailed(
                f"cannot start {program} in the sandbox: code that runs there wrote in its name; reset it"
            )
        self._group = int(line)

    async def wait(self) -> int:
        if self._exit_code is None:
            while not self._streams.ended.is_set():
                await self._streams.take_in()
            code = await self._streams.exit_code()
            # What ended it may have ended everything; with a kernel of its own, such as gVisor, a limit does that, and
            # the code is then the runtime's.
            if code is None or not self._sandbox.alive or (code and not await self._sandbox.answers()):
                raise SandboxLost("the sandbox ended while its code ran; run again in a new session")
            self._exit_code = code
        return self._exit_code

    @property
    def running(self) -> bool:
        return self._streams.look()

    async def signal(self, number: signal.Signals) -> None:
        if self._group and not self._streams.ended.is_set():
            await self._sandbox.signal(self._group, number)

    async def settle(self) -> None:
        # The agent does one thing after the other.
        await self._sandbox.answers()

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.kill()
        self.close()

    def close(self) -> None:
        """Lets go of its streams, whether or not it has ended."""
        self._streams.close()
        self._sandbox.processes.discard(self)

    async def _refused(self, program: str) -> StartFailed:
        """What its command said before it ended."""
        await self.stdin.aclose()
        said = bytearray()
        for stream in (self._streams.stdout, self._streams.stderr):
            async for part in stream:
                said += part
                if len(said) > _COMPLAINT:
                    break  # no shell says so much: it is code that runs there, and may go on for ever
        self.close()
        reason = said.decode(errors="replace").strip()[-300:]
        return StartFailed(f"cannot start {program} in the sandbox: {reason or 'no reason given'}")
