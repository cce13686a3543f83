"""The conversation with the agent of a container: lines that it is told, questions, and its answers.

Code of the same user can stop the agent, or speak in its place: answers are waited for with a bound, told from forged
ones by a word of their own, and what is said unasked is dropped.
"""

import contextlib
import secrets
import signal
from collections.abc import Sequence

import anyio

from ..base import Usage
from .container import Container, Streams

ANSWER = 20.0
"""Seconds for the agent to answer."""
_LINE = 4096
"""Bytes of a line of the agent's."""
_FORGET = 16
"""How often what was said unasked is taken in and dropped, 1 MiB and a little each time."""
_READ = 1 << 16
_SEEN = 8 << 20
"""Bytes that the agent may say of what it sees."""


class Conversation:
    """Asks one agent one thing at a time."""

    def __init__(self, agent: Streams) -> None:
        self._agent = agent
        self._asking = anyio.Lock()

    async def introduce(self, handlers: bytes) -> str:
        """Gives the agent the handlers, and returns its first line."""
        with contextlib.suppress(anyio.BrokenResourceError):
            await self._agent.stdin.send(b"%d\n" % len(handlers) + handlers)
        return await self._line()

    @property
    def ended(self) -> bool:
        """Whether the agent has ended, and with it the container."""
        if not self._asking.locked():
            # What code says in the agent's name must not hide the agent's end, which comes after it.
            for _ in range(_FORGET):
                self._agent.look()
                if not self._agent.forget():
                    break
        return self._agent.ended.is_set()

    async def tell(self, line: str) -> None:
        """Sends one line; nothing happens when the agent is gone, or takes nothing any more."""
        # Busy where another line is stuck already.
        with anyio.move_on_after(ANSWER), contextlib.suppress(anyio.BrokenResourceError, anyio.BusyResourceError):
            await self._agent.stdin.send(line.encode() + b"\n")

    async def signal(self, group: int, number: signal.Signals) -> None:
        """Has a signal sent to a process group inside."""
        await self.tell(f"signal {number.name.removeprefix('SIG')} {group}")

    async def usage(self) -> Usage | None:
        """What the agent counts; None when it has ended, or does not say it in time."""
        word = secrets.token_hex(8)
        async with self._asking:
            with anyio.move_on_after(ANSWER):
                await self.tell(f"usage {word}")
                while line := await self._line():
                    match line.split():
                        case ["usage", given, kills, refused, cpu] if given == word:
                            return Usage(int(kills), int(refused), int(cpu) / 1e6 or None)
        return None

    async def look(self, command: str, seconds: float) -> bytes:
        """What a command prints that the agent runs; nothing when it does not come to its end in time.

        It is spared a start by the engine, which on a distant one takes much longer than the command.
        """
        word = secrets.token_hex(8)
        mark = f"\0{word}\n".encode()
        said = bytearray()
        async with self._asking:
            with anyio.move_on_after(seconds), contextlib.suppress(anyio.EndOfStream):
                await self.tell(f"look {word} {command}")
                while said.count(mark) < 2 and len(said) < _SEEN:
                    said += await self._agent.stdout.receive(_READ)
        # Before the first mark comes what was answered too late to be waited for.
        match bytes(said).split(mark, 2):
            case [_, seen, _]:
                return seen
            case _:
                return b""

    async def ending(self, seconds: float) -> None:
        """Returns once the agent has ended, or so many seconds are over."""
        with anyio.move_on_after(seconds):
            async with self._asking:
                await self.forget_all()

    async def forget_all(self) -> None:
        """Takes in and drops whatever is said, until the agent ends."""
        while not self._agent.ended.is_set():
            await self._agent.take_in()
            self._agent.forget()

    def close(self) -> None:
        """Lets go of the agent, which ends it."""
        self._agent.close()

    async def _line(self) -> str:
        """The agent's next line, of a long one a part; what is there of it when it ends."""
        line = bytearray()
        while not line.endswith(b"\n") and len(line) < _LINE:
            try:
                line += await self._agent.stdout.receive(1)
            except anyio.EndOfStream:
                break
        return line.decode(errors="replace").strip() if line != b"\n" else "-"


async def ask(container: Container, argv: Sequence[str]) -> str | None:
    """The first words that a command prints in a container that may be another server's; None without an answer."""
    with anyio.move_on_after(ANSWER):
        streams = await container.start(argv, fed=False)
        try:
            return (await streams.stdout.receive(_LINE)).decode(errors="replace")
        except anyio.EndOfStream:
            return ""
        finally:
            streams.close()
    return None
