"""The interface to a sandbox's container or pod: it starts processes there, and removes the container."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

from ...base.errors import SandboxLost
from ...base.messages import Problem

_READ = 1 << 18


def lost_sandbox() -> SandboxLost:
    """The error for any call on a container that has ended."""
    return SandboxLost("the sandbox is gone", "open a new session")


class Output(ByteReceiveStream):
    """One of the outputs of a process; reading one reads in data for both. A cancelled `receive` loses nothing."""

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self.buffer = bytearray()
        self.taken = anyio.Event()

    async def receive(self, max_bytes: int = _READ) -> bytes:
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self.buffer:
            # Lets other tasks run even if this does not wait; shielded, otherwise the data would be lost.
            await anyio.lowlevel.cancel_shielded_checkpoint()
        while not self.buffer:
            if self._streams.ended.is_set():
                raise anyio.EndOfStream
            await self._streams.take_in()
        if len(self.buffer) <= max_bytes:
            data = bytes(self.buffer)
            self.buffer.clear()
        else:
            data = bytes(self.buffer[:max_bytes])
            del self.buffer[:max_bytes]
        self.took()
        return data

    def took(self) -> None:
        """Allows more to be read."""
        self.taken.set()
        self.taken = anyio.Event()

    async def aclose(self) -> None:
        """Does nothing: all three streams share one connection."""


class Streams(ABC):
    """The three streams of a process in a container, and its exit code."""

    stdin: ByteSendStream
    stdout: Output
    stderr: Output
    ended: anyio.Event
    """Set once no more data can come from either output."""

    @abstractmethod
    async def take_in(self) -> None:
        """Waits until data has arrived for either output, or both have ended."""

    @abstractmethod
    def look(self) -> bool:
        """Reads in the data that has already arrived, without waiting; returns whether more can come."""

    def forget(self) -> bool:
        """Drops the data that was read in but not received; returns whether there was any."""
        outputs = (self.stdout, self.stderr)
        any_there = any(output.buffer for output in outputs)
        for output in outputs:
            output.buffer.clear()
            output.took()
        return any_there

    @abstractmethod
    async def exit_code(self) -> int | None:
        """The exit code, once the streams have ended; None if it cannot be found out."""

    @abstractmethod
    def close(self) -> None:
        """Closes the streams, whether or not the process has ended."""


class Container(ABC):
    """A container or a pod. It raises only errors of this package."""

    id: str
    engine: str
    """The name of the engine, for messages."""

    @abstractmethod
    async def start(self, argv: Sequence[str], *, closes_input: bool) -> Streams:
        """Starts a process; `closes_input` means the same as in `Sandbox.spawn`.

        Raises `SandboxLost` if the container is gone. If the call is cancelled, the process may have been started.
        """

    @abstractmethod
    async def remove(self) -> None:
        """Ends and removes the container; does nothing if it is already gone."""

    @abstractmethod
    async def silence(self) -> Problem | None:
        """Why its engine does not answer now; None if it does."""
