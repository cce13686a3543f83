"""What a sandbox needs of the container or pod that it lives in: processes are started in it, and it is removed."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

from ...errors import SandboxLost

_READ = 1 << 18


def lost_sandbox() -> SandboxLost:
    """The error for whatever is asked of a container that has ended."""
    return SandboxLost("the sandbox is gone; open a new session")


class Output(ByteReceiveStream):
    """One of the outputs of a process; whoever reads it takes in both. A cancelled `receive` loses nothing."""

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self.buffer = bytearray()
        self.taken = anyio.Event()

    async def receive(self, max_bytes: int = _READ) -> bytes:
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self.buffer:
            # Others get their turn where this does not wait; shielded, or what is taken would be lost.
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
        """Lets more be read."""
        self.taken.set()
        self.taken = anyio.Event()

    async def aclose(self) -> None:
        """Nothing: the connection is one for all three streams."""


class Streams(ABC):
    """The three streams of a process in a container, and its end."""

    stdin: ByteSendStream
    stdout: Output
    stderr: Output
    ended: anyio.Event
    """Set once nothing more can come of either output."""

    @abstractmethod
    async def take_in(self) -> None:
        """Waits until something came, for whichever stream, or both ended."""

    @abstractmethod
    def look(self) -> bool:
        """Takes in what is there already, without waiting; whether more can come."""

    def forget(self) -> bool:
        """Drops what was taken in and not received; whether there was any."""
        outputs = (self.stdout, self.stderr)
        any_there = any(output.buffer for output in outputs)
        for output in outputs:
            output.buffer.clear()
            output.took()
        return any_there

    @abstractmethod
    async def exit_code(self) -> int | None:
        """How the process ended, once its streams have; None when that cannot be found out."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of the streams, whether or not the process has ended."""


class Container(ABC):
    """A container or a pod. Its errors are ours already."""

    id: str
    engine: str
    """The name of what runs it, in messages."""

    @abstractmethod
    async def start(self, argv: Sequence[str], *, fed: bool) -> Streams:
        """Starts a process; `fed` is what `Sandbox.spawn` says it is.

        Raises `SandboxLost` when the container is gone. Cancelled, it may have been started.
        """

    @abstractmethod
    async def remove(self) -> None:
        """Ends and removes it; nothing happens when it is gone."""
