"""The raw streams of an engine: one connection for each attached process, with both its outputs in frames."""

import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import anyio
import anyio.lowlevel
from anyio.abc import ByteSendStream

from ...aio.fds import readable, writable
from ...base.errors import EngineUnavailable
from .container import Output, Streams
from .engine import LAST_CHARACTERS
from .tls import SecureSocket

_READ = 1 << 18
_AHEAD = 1 << 20
"""Bytes of one stream that are buffered while the other is read; beyond that, its reader must take some."""
_HEAD = 8
"""Bytes before each frame: its stream, three zeros, and its length."""
_RESPONSE = 64 << 10


class Connection:
    """A connected socket, with or without TLS, as bytes in both directions; no code runs while no data moves."""

    def __init__(self, connected: socket.socket | SecureSocket) -> None:
        connected.setblocking(False)
        self._socket = connected

    async def receive(self, into: bytearray) -> int:
        """Reads the next bytes and returns their number, 0 at EOF; if cancelled, it loses nothing."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        waited = False
        while (size := self.receive_nowait(into)) is None:
            try:
                await readable(self._socket)
            except (OSError, ValueError, anyio.ClosedResourceError):
                return 0
            waited = True
        if not waited:
            # Lets other tasks and deadlines run, however much data there is; shielded, or the data would be lost.
            await anyio.lowlevel.cancel_shielded_checkpoint()
        return size

    def receive_nowait(self, into: bytearray) -> int | None:
        """Reads the bytes that have arrived and returns their number, 0 at EOF, None if none have arrived yet."""
        try:
            return self._socket.recv_into(into)
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            return 0  # the connection was cut, which is an end too

    async def send(self, data: bytes) -> None:
        """Sends all; raises `anyio.BrokenResourceError` if the other side no longer reads."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        rest = memoryview(data)
        while rest or (isinstance(self._socket, SecureSocket) and self._socket.unsent):
            try:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    await writable(self._socket)
            except (OSError, ValueError, anyio.ClosedResourceError):
                raise anyio.BrokenResourceError from None

    def end(self) -> None:
        """Signals that nothing more will be sent."""
        try:
            if isinstance(self._socket, SecureSocket):
                self._socket.end()
            else:
                self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # gone

    def close(self) -> None:
        """Closes the socket, and wakes the tasks that wait on it."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()


class Refused(Exception):
    """An engine's answer to `upgrade` that is not a stream."""

    def __init__(self, status: int, content: bytes) -> None:
        try:
            message = str(json.loads(content)["message"])
        except (ValueError, KeyError, TypeError):
            message = content.decode(errors="replace").strip()
        super().__init__(message[-LAST_CHARACTERS:] or f"status {status}")
        self.gone = status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
        """Whether the container does not exist, or does not run."""


def upgrade(connected: socket.socket | SecureSocket, path: str, body: Mapping[str, object] | None = None) -> Connection:
    """Asks an engine, over a new blocking socket, to turn the socket into a raw stream; runs in a worker thread.

    Raises `Refused` with the engine's reason, `EngineUnavailable` if the engine does not answer.
    """
    content = b"" if body is None else json.dumps(body).encode()
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: engine",
        "Connection: Upgrade",
        "Upgrade: tcp",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "",
        "",
    )
    try:
        connected.sendall("\r\n".join(lines).encode("ascii") + content)
        head = bytearray()
        while not head.endswith(b"\r\n\r\n"):
            # One byte at a time: everything after the head belongs to the stream.
            byte = connected.recv(1)
            if not byte or len(head) > _RESPONSE:
                raise EngineUnavailable("the engine closed the connection", "check whether it is running")
            head += byte
        status = bytes(head).split(b" ", 2)[1]
        if status not in (b"101", b"200"):
            raise Refused(int(status), connected.recv(_RESPONSE))
    except BaseException as error:
        connected.close()
        if isinstance(error, OSError):
            raise EngineUnavailable(f"the engine opened no stream: {error}", "check whether it is running") from error
        raise
    return Connection(connected)


class Attached(Streams):
    """The three streams of a process on one connection. Reading one output reads in data for both."""

    def __init__(
        self, connection: Connection, ask_exit_code: Callable[[], Awaitable[int | None]] | None = None
    ) -> None:
        self.connection = connection
        self._ask_exit_code = ask_exit_code
        self.stdin: Input = Input(connection)
        self.stdout = Output(self)
        self.stderr = Output(self)
        self.ended = anyio.Event()
        """Set once both outputs have been read in to their end."""
        self._arrived = bytearray(_READ)
        self._head = bytearray()
        self._into = self.stdout
        self._left = 0
        """Bytes of the current frame that have yet to come."""
        self._reading = False
        self._moved = anyio.Event()

    async def take_in(self) -> None:
        """Waits until data has arrived for either output. One task reads for all; if cancelled, another takes over."""
        if self._reading:
            await self._moved.wait()
            return
        self._reading = True
        try:
            for output in (self.stdout, self.stderr):
                while len(output.buffer) > _AHEAD:
                    await output.taken.wait()
            self._took(await self.connection.receive(self._arrived))
        finally:
            self._reading = False
            self._moved.set()
            self._moved = anyio.Event()

    def look(self) -> bool:
        """Reads in data that has arrived, within bounds and without waiting; returns whether more can come.

        An end is noticed only after all data that was sent before it.
        """
        while not self._reading and not self.ended.is_set():
            if max(len(self.stdout.buffer), len(self.stderr.buffer)) > _AHEAD:
                break
            size = self.connection.receive_nowait(self._arrived)
            if size is None:
                break
            self._took(size)
        return not self.ended.is_set()

    def _took(self, size: int) -> None:
        if not size:
            # Closed, so that a task that still writes gets an error.
            self.close()
            return
        with memoryview(self._arrived) as view:
            at = 0
            while at < size:
                if self._left:
                    end = min(size, at + self._left)
                    self._into.buffer += view[at:end]
                    self._left -= end - at
                else:
                    end = min(size, at + _HEAD - len(self._head))
                    self._head += view[at:end]
                    if len(self._head) == _HEAD:
                        self._into = self.stderr if self._head[0] == 2 else self.stdout
                        self._left = int.from_bytes(self._head[4:], "big")
                        self._head.clear()
                at = end

    async def exit_code(self) -> int | None:
        return await self._ask_exit_code() if self._ask_exit_code else None

    def close(self) -> None:
        """Closes the connection, and all three streams."""
        self.connection.close()
        self.ended.set()


class Input(ByteSendStream):
    """The standard input of an attached process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed = False

    async def send(self, item: bytes) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        await self._connection.send(item)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._connection.end()
