"""Listening in a container that has no network: a relay inside carries connections over its standard streams.

The relay runs next to code that can kill or replace it, so nothing that it sends is trusted: this module counts every
connection, every byte and every waiting frame, and ends the listening if the relay breaks the rules.
"""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from ...aio.tasks import open_tasks
from ...base.errors import ListeningFailed, StartFailed
from ..base import Process, Sandbox
from ..layout import PATH
from ..listening import Listener
from .container import lost_sandbox
from .frames import (
    CLOSE,
    CONNECTIONS,
    DATA,
    END,
    LISTENING,
    OPEN,
    PAYLOAD,
    TAKEN,
    WINDOW,
    Frame,
    FrameReader,
    Malformed,
    numbered,
)

_PROGRAM = (Path(__file__).parent / "relay.pl").read_text(encoding="utf-8")
_START_SECONDS = 30.0
_FRAMES = 1024
"""Maximum frames that wait to be sent; if the relay reads, far fewer wait."""
_DATA_FRAMES = 8
"""Maximum of these frames with data; further data stays with its sender until one of them is sent."""
_COMPLAINT_SECONDS = 10.0
_COMPLAINT = 300
"""Maximum characters of the error output of a relay that failed."""


@asynccontextmanager
async def open_relay(sandbox: Sandbox, port: int = 0) -> AsyncIterator[Listener]:
    """A listener in a sandbox for as long as the scope lasts; the body is cancelled when the relay fails.

    Raises `ListeningFailed` for an image without Perl and for a relay that fails, `SandboxLost` if the sandbox is lost.
    """
    async with await _start(sandbox, port) as process:
        with _Relay(process) as relay:
            async with open_tasks() as tasks:
                for task in (relay.read, relay.write, relay.hear_complaints):
                    tasks.start_soon(task)
                with relay.scope:
                    with anyio.move_on_after(_START_SECONDS) as starting:
                        await relay.listening.wait()
                    if starting.cancelled_caught:
                        relay.fail(f"it did not start in {_START_SECONDS:g} s")
                    else:
                        yield relay
                tasks.cancel_scope.cancel()
    if relay.failure and not sandbox.alive:
        raise lost_sandbox()
    if relay.failure:
        raise ListeningFailed(f"the relay in the sandbox failed: {relay.failure}", "open a new session")


async def _start(sandbox: Sandbox, port: int) -> Process:
    limits = map(str, (CONNECTIONS, WINDOW, PAYLOAD, port))
    try:
        return await sandbox.spawn(("perl", "-e", _PROGRAM, *limits), {"PATH": PATH}, "/")
    except StartFailed as error:
        raise ListeningFailed(
            f"{sandbox.origin} supports neither libraries at run time nor network by name: {error.cause}",
            "add Perl to the image (perl-base is enough), or the libraries themselves",
        ) from error


class _Relay(Listener):
    """The server's side of one relay."""

    def __init__(self, process: Process) -> None:
        self.port = 0
        self.scope = anyio.CancelScope()
        """The scope of the code that uses the listener."""
        self.slots = anyio.Semaphore(_DATA_FRAMES)
        """One slot for each waiting frame with data."""
        self.listening = anyio.Event()
        self.failure = ""
        self.connections: dict[int, _Connection] = {}
        self._process = process
        self._opened, self._accepted = anyio.create_memory_object_stream[_Connection](CONNECTIONS)
        self._waiting, self._outgoing = anyio.create_memory_object_stream[Frame](_FRAMES)
        self._complaint = ""
        self._heard = anyio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for stream in (self._opened, self._accepted, self._waiting, self._outgoing):
            stream.close()
        for connection in self.connections.values():
            connection.lose()

    async def accept(self) -> ByteStream:
        return await self._accepted.receive()

    def fail(self, reason: str) -> None:
        """Ends the listening; the first reason given is kept."""
        self.failure = self.failure or reason
        self.scope.cancel()

    def post(self, frame: Frame) -> None:
        """Sends a frame as soon as possible; a frame with data has a slot."""
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                self._waiting.send_nowait(frame)
            except anyio.WouldBlock:
                self.fail("it does not read what it is sent")

    async def write(self) -> None:
        """Sends the frames; it is the only writer, so that a cancelled caller never leaves half a frame."""
        with contextlib.suppress(anyio.BrokenResourceError):
            async for frame in self._outgoing:
                await self._process.stdin.send(frame.encode())
                if frame.kind == DATA:
                    self.slots.release()

    async def read(self) -> None:
        """Reads what the relay sends until it ends; never waits for anything else, or the relay would stop reading."""
        frames = FrameReader()
        try:
            async for data in self._process.stdout:
                for frame in frames.feed(data):
                    self._take(frame)
            with anyio.move_on_after(_COMPLAINT_SECONDS):
                await self._heard.wait()
            self.fail(self._complaint or "it ended")
        except Malformed as error:
            self.fail(str(error))

    async def hear_complaints(self) -> None:
        """Keeps the end of the relay's error output, on one line."""
        async for data in self._process.stderr:
            text = self._complaint + data.decode(errors="replace")
            self._complaint = " ".join(text.split())[-_COMPLAINT:]
        self._heard.set()

    def _take(self, frame: Frame) -> None:
        if self.listening.is_set() == (frame.kind == LISTENING):
            raise Malformed("it did not report its port exactly once")
        if frame.kind == LISTENING:
            if not 0 < frame.number < 1 << 16:
                raise Malformed("it reported a port that is not valid")
            self.port = frame.number
            self.listening.set()
        elif frame.kind == OPEN:
            if frame.connection in self.connections or len(self.connections) == CONNECTIONS:
                raise Malformed(f"it opened a connection twice, or more than {CONNECTIONS} connections")
            connection = self.connections[frame.connection] = _Connection(self, frame.connection)
            self._opened.send_nowait(connection)
        elif frame.connection in self.connections:
            self.connections[frame.connection].take(frame)
        else:
            raise Malformed("it named a connection that is not open")


class _Connection(ByteStream):
    """One connection; a cancelled `receive` loses nothing, a cancelled `send` may have sent a part."""

    def __init__(self, relay: _Relay, number: int) -> None:
        self._relay = relay
        self._number = number
        self._buffer = bytearray()
        self._untaken = 0
        self._room = WINDOW
        self._ended = False
        self._gone = False
        self._closed = False
        self._moved = anyio.Event()

    def take(self, frame: Frame) -> None:
        """Takes in a frame for this connection; raises `Malformed` if it breaks the rules."""
        if self._gone or (self._ended and frame.kind == DATA):
            raise Malformed("it sent more on a connection that had ended")
        if frame.kind == DATA:
            self._untaken += len(frame.payload)
            self._buffer += b"" if self._closed else frame.payload
        elif frame.kind == TAKEN:
            self._room += frame.number
        if max(self._untaken, self._room) > WINDOW:
            raise Malformed(f"it sent, or reported as taken, more than {WINDOW} bytes at once")
        self._ended |= frame.kind in (END, CLOSE)
        self._gone |= frame.kind == CLOSE
        self._forget()

    def lose(self) -> None:
        """Ends the connection, since the relay is gone."""
        self._ended = self._gone = True
        self._moved.set()

    async def receive(self, max_bytes: int = PAYLOAD) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._buffer:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._ended:
                raise anyio.EndOfStream
            await self._moved.wait()
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        self._untaken -= len(data)
        self._relay.post(numbered(TAKEN, self._number, len(data)))
        return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            while not self._room and not self._gone and not self._closed:
                await self._moved.wait()
            await self._relay.slots.acquire()
            if self._gone or self._closed:
                self._relay.slots.release()
                raise anyio.ClosedResourceError if self._closed else anyio.BrokenResourceError
            part, rest = rest[: min(self._room, PAYLOAD)], rest[min(self._room, PAYLOAD) :]
            self._room -= len(part)
            self._relay.post(Frame(DATA, self._number, bytes(part)))

    async def send_eof(self) -> None:
        self._relay.post(Frame(END, self._number))

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._buffer.clear()
            self._relay.post(Frame(CLOSE, self._number))
            self._forget()
        await anyio.lowlevel.checkpoint()

    def _forget(self) -> None:
        """Makes room for another connection once both sides are done with it, and wakes the tasks that wait on it."""
        if self._gone and self._closed:
            self._relay.connections.pop(self._number, None)
        self._moved.set()
        self._moved = anyio.Event()
