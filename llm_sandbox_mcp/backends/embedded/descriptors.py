"""Pipes and packet sockets as anyio streams: they use no thread, no task and no polling while idle."""

import errno
import os
import socket

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

from ...aio.fds import readable, writable
from ...base.errors import Unavailable

_READ = 1 << 16
_PACKET = 1 << 18
_IN_FLIGHT = (
    "no process can be started: other processes of the server's user have all the descriptors in flight that the "
    "kernel allows",
    "end them, and give each sandbox its own uid: `llm-sandbox-mcp doctor` shows how",
)


class _Descriptor:
    """A non-blocking descriptor, closed once; waiters are woken when it closes."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    def _open(self) -> int:
        if self._descriptor < 0:
            raise anyio.ClosedResourceError
        return self._descriptor

    async def aclose(self) -> None:
        """Closes the descriptor; does nothing if it is closed already."""
        self.close()

    def close(self) -> None:
        """Closes the descriptor, for callers that cannot await; does nothing if it is closed already."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            anyio.notify_closing(descriptor)
            os.close(descriptor)


class PipeReader(_Descriptor, ByteReceiveStream):
    """The reading end of a pipe; a cancelled `receive` loses nothing."""

    async def receive(self, max_bytes: int = _READ) -> bytes:
        await anyio.lowlevel.checkpoint_if_cancelled()
        waited = False
        while True:
            try:
                data = os.read(self._open(), max_bytes)
            except BlockingIOError:
                await readable(self._open())
                waited = True
                continue
            if not waited:
                # Lets other tasks run if this call did not wait. Shielded: a cancellation would lose what was read.
                await anyio.lowlevel.cancel_shielded_checkpoint()
            if not data:
                raise anyio.EndOfStream
            return data


class PipeWriter(_Descriptor, ByteSendStream):
    """The writing end of a pipe; `anyio.BrokenResourceError` when nobody reads any more."""

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self._open(), rest) :]
            except BlockingIOError:
                await writable(self._open())
            except BrokenPipeError:
                raise anyio.BrokenResourceError from None


class PacketSocket:
    """One end of a `SOCK_SEQPACKET` pair: packets with descriptors, in both directions."""

    def __init__(self, packets: socket.socket) -> None:
        packets.setblocking(False)
        self._socket = packets
        self._sending = anyio.Lock(fast_acquire=True)

    async def send(self, packet: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Sends one whole packet; `anyio.BrokenResourceError` when the other end is gone.

        Raises `Unavailable` while the user of this process has too many descriptors in flight, no matter which process
        sent them.
        """
        while True:
            try:
                try:
                    socket.send_fds(self._socket, [packet], descriptors)
                    return
                except BlockingIOError:
                    async with self._sending:  # only one task can wait for a socket
                        await writable(self._socket)
            except (OSError, anyio.ClosedResourceError) as error:
                if isinstance(error, OSError) and error.errno == errno.ETOOMANYREFS:
                    raise Unavailable(*_IN_FLIGHT) from error
                raise anyio.BrokenResourceError from error

    async def receive(self) -> tuple[bytes, list[int]]:
        """The next packet and its descriptors; `anyio.EndOfStream` when the other end is gone or this end is closed."""
        while True:
            try:
                try:
                    packet, descriptors, _, _ = socket.recv_fds(self._socket, _PACKET, 8)
                except BlockingIOError:
                    await readable(self._socket)
                    continue
            except (OSError, anyio.ClosedResourceError) as error:
                raise anyio.EndOfStream from error
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            if not packet:
                raise anyio.EndOfStream
            return packet, descriptors

    def close(self) -> None:
        """Closes the socket; a waiting `receive` or `send` ends."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()
