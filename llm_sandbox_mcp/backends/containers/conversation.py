"""The conversation with the agent of a container: commands, queries, and the agent's answers.

Code of the same user can stop the agent, or write answers instead of it. So waiting for an answer has a timeout, each
answer is recognised by a random word, and output that was not requested is dropped.
"""

import contextlib
import secrets
import signal
from collections.abc import Iterable, Sequence

import anyio

from ..base import LOOK_OUTPUT, Usage
from .agent import Packed
from .container import Container, Streams

_LOOKED = 1.0
"""Seconds to pass on that a command is no longer waited for."""
ANSWER = 20.0
"""Seconds for the agent to answer."""
_LINE = 4096
"""Maximum bytes of one line from the agent."""
_FORGET = 16
"""How often output that was not requested is read in and dropped, a little over 1 MiB each time."""
_READ = 1 << 16


class Conversation:
    """Sends queries to one agent, one at a time."""

    def __init__(self, agent: Streams) -> None:
        self._agent = agent
        self._asking = anyio.Lock()
        self.touched = False
        """Whether /home or /tmp had changed, at the last count, since files there were last listed."""

    async def introduce(self, handlers: Packed) -> str:
        """Sends the agent the handlers, unless its image contains them, and returns its first line after that."""
        answer = await self._answer(f"{len(handlers.archive)} {handlers.digest}\n".encode())
        return await self._answer(handlers.archive) if answer == "send" else answer

    async def _answer(self, data: bytes) -> str:
        with contextlib.suppress(anyio.BrokenResourceError):
            await self._agent.stdin.send(data)
        return await self._line()

    @property
    def ended(self) -> bool:
        """Whether the agent has ended, and with it the container."""
        if not self._asking.locked():
            # Output that code writes in the agent's name must not hide the agent's end, which comes after it.
            for _ in range(_FORGET):
                self._agent.look()
                if not self._agent.forget():
                    break
        return self._agent.ended.is_set()

    async def send(self, line: str) -> None:
        """Sends one line; does nothing if the agent is gone, or no longer reads."""
        # The stream is busy if another line is stuck already.
        with anyio.move_on_after(ANSWER), contextlib.suppress(anyio.BrokenResourceError, anyio.BusyResourceError):
            await self._agent.stdin.send(line.encode() + b"\n")

    async def signal(self, group: int, number: signal.Signals) -> None:
        """Makes the agent send a signal to a process group in the container."""
        await self.send(f"signal {number.name.removeprefix('SIG')} {group}")

    async def pause(self, code: Iterable[int]) -> None:
        """Makes the agent stop all processes; what the engine started goes on, without these groups."""
        await self.send(f"pause {' '.join(map(str, code))}")

    async def usage(self) -> Usage | None:
        """The agent's counters; None if it has ended, or does not answer in time."""
        word = secrets.token_hex(8)
        async with self._asking:
            with anyio.move_on_after(ANSWER):
                await self.send(f"usage {word}")
                while line := await self._line():
                    match line.split():
                        case ["usage", given, kills, refused, cpu, touched] if given == word:
                            self.touched = touched == "1"
                            return Usage(int(kills), int(refused), int(cpu) / 1e6 or None)
        return None

    async def look(self, command: str, seconds: float) -> bytes:
        """The output of a command that the agent runs; empty if the command does not finish in time.

        This avoids a start by the engine, which on a remote engine takes much longer than the command.
        """
        word = secrets.token_hex(8)
        mark = f"\0{word}\n".encode()
        output = bytearray()
        async with self._asking:
            try:
                with anyio.move_on_after(seconds), contextlib.suppress(anyio.EndOfStream):
                    await self.send(f"look {word} {command}")
                    while output.count(mark) < 2 and len(output) < LOOK_OUTPUT:
                        output += await self._agent.stdout.receive(_READ)
            finally:
                with anyio.move_on_after(_LOOKED, shield=True):
                    await self.send("looked")
        # Before the first mark there may be an earlier answer that came too late.
        match bytes(output).split(mark, 2):
            case [_, printed, _]:
                return printed
            case _:
                return b""

    async def ending(self, seconds: float) -> None:
        """Returns once the agent has ended, or after this many seconds."""
        with anyio.move_on_after(seconds):
            async with self._asking:
                await self.forget_all()

    async def forget_all(self) -> None:
        """Reads in and drops all output, until the agent ends."""
        while not self._agent.ended.is_set():
            await self._agent.take_in()
            self._agent.forget()

    def close(self) -> None:
        """Closes the connection to the agent, which ends the agent."""
        self._agent.close()

    async def _line(self) -> str:
        """The agent's next line, or a part if it is long; "-" for an empty line, and the rest when the agent ends."""
        line = bytearray()
        while not line.endswith(b"\n") and len(line) < _LINE:
            try:
                line += await self._agent.stdout.receive(1)
            except anyio.EndOfStream:
                break
        return line.decode(errors="replace").strip() if line != b"\n" else "-"


async def ask(container: Container, argv: Sequence[str]) -> str | None:
    """The first output of a command in a container that may belong to another server; None without an answer."""
    with anyio.move_on_after(ANSWER):
        streams = await container.start(argv, closes_input=False)
        try:
            return (await streams.stdout.receive(_LINE)).decode(errors="replace")
        except anyio.EndOfStream:
            return ""
        finally:
            streams.close()
    return None
