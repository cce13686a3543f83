"""The streams of a process in a pod: one websocket, whose messages begin with the number of their channel."""

import contextlib
import json
import struct
from pathlib import Path

import aiohttp
import anyio
from anyio.abc import ByteSendStream

from ..bpf import program
from ..calls import CALLS
from ..containers.container import Output, Streams

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The websocket protocols that are supported, the newer first."""

PERL = "perl"
"""The interpreter of the feeder; every image must have it."""
_READER = """\
sub r { my ($n, $d) = (@_, ""); while (length $d < $n) { sysread STDIN, $d, $n - length $d, length $d or exit 255 } $d }
my $c = r(unpack "N", r(4)); eval $c; die $@ if $@"""
_FILTERS = "".join(
    f"{machine} => [{prctl}, '{program(machine).hex()}'], " for machine, prctl in CALLS["prctl"].numbers.items()
)
FEEDER = f"%filters = ({_FILTERS});\n".encode() + (Path(__file__).parent / "feeder.pl").read_bytes()
"""The first frame of input for every process."""

_STDIN, _STDOUT, _STDERR, _STATUS = 0, 1, 2, 3
_AHEAD = 1 << 20
"""Bytes of one stream that are buffered; beyond that, its reader must take some before more is read."""
_RATE = 30e6
"""Bytes per second read from one process: its output passes through programs of the cluster, which all share."""
_PORTION = 1 << 17
"""Bytes read at once before a pause."""
_LEAST = 1 << 12
"""Bytes that a message counts as at least: even one byte costs each program that passes it on this much."""
_MESSAGE = 1 << 16
_CLOSING = 1.0
_LINGER = 2.0
"""Seconds that a connection stays open to report the exit code of a process that was just killed."""
_SIZE = struct.Struct(">I")


def feeder(closes_input: bool) -> tuple[str, ...]:
    """The words before those of every process: they start the feeder, which starts the process.

    The older protocol cannot signal the end of the input to a process, and neither protocol reports the end of a
    process while any program that it started keeps its streams open. The feeder also filters system calls, in addition
    to the cluster's own seccomp profile, which allows more. `closes_input`: an end of the input will come, and the
    feeder stays until then: data that is sent to a process that has ended breaks the connection, and its exit code is
    lost with it.
    The feeder itself is the first frame, since the words become part of a URL, and proxies limit its length, many to
    8 kB.
    """
    return (PERL, "-e", _READER, "fed" if closes_input else "open")


class Channels(Streams):
    """Three streams and an exit code. `pump` reads in the data; the owner of the pod runs it as a task."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, *, framed: bool = False, linger: float = _LINGER
    ) -> None:
        """`framed`: the feeder runs the process. `linger`: seconds that the connection outlives its streams."""
        self._socket = socket
        self._linger = linger
        self._scope = anyio.CancelScope()
        self._moved = anyio.Event()
        self._over = anyio.Event()
        """Set once the connection has ended too: nothing more will be reported about the process."""
        self._status = b""
        self.stdin: Input = Input(socket, framed=framed)
        self.stdout = Output(self)
        self.stderr = Output(self)
        self.ended = anyio.Event()
        """Set once no more data can come."""

    async def pump(self) -> None:
        """Reads in data until the end, or until the streams are closed."""
        try:
            with self._scope:
                await self._take_in()
        finally:
            self.ended.set()
            self._over.set()
            self._wake()
            with anyio.move_on_after(_CLOSING, shield=True):
                await self._socket.close()

    async def _take_in(self) -> None:
        taken = 0
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            kind = message.data[0]
            if kind == _STATUS:
                self._status += message.data[1:]
                self._leave()  # nothing follows; if the cluster does not close the connection, the run must still end
            elif kind in (_STDOUT, _STDERR) and not self.ended.is_set():
                output = self.stdout if kind == _STDOUT else self.stderr
                output.buffer += memoryview(message.data)[1:]
                self._wake()
                taken += max(len(message.data), _LEAST)
                if taken > _PORTION:
                    await anyio.sleep(taken / _RATE)
                    taken = 0
                while len(output.buffer) > _AHEAD:
                    await output.taken.wait()

    async def take_in(self) -> None:
        """Waits until data has arrived for either output."""
        if not self.ended.is_set():
            await self._moved.wait()

    def look(self) -> bool:
        """Whether more can come."""
        return not self.ended.is_set()

    def close(self) -> None:
        if not self.ended.is_set():
            self._leave()
            self.ended.set()
            self.forget()
            self._wake()

    def _leave(self) -> None:
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + self._linger)

    async def exit_code(self) -> int | None:
        await self._over.wait()
        return self._exit_code()

    def _exit_code(self) -> int | None:
        """None if the pod, or the connection to it, ended before the process."""
        try:
            status = json.loads(self._status)
        except ValueError:
            return None
        if status.get("status") == "Success":
            return 0
        causes = (status.get("details") or {}).get("causes") or ()
        codes = [cause["message"] for cause in causes if cause.get("reason") == "ExitCode"]
        return int(codes[0]) if codes else None

    def _wake(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()


class Input(ByteSendStream):
    """The standard input of a process."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, *, framed: bool) -> None:
        self._socket = socket
        self._framed = framed
        self._closed = False

    async def send(self, item: bytes) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        for at in range(0, len(item), _MESSAGE):
            part = item[at : at + _MESSAGE]
            head = _SIZE.pack(len(part)) if self._framed else b""
            await self._send(bytes([_STDIN]) + head + part)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            if self._framed:  # the agent's input ends with its connection
                with contextlib.suppress(anyio.BrokenResourceError):  # the process has ended
                    await self._send(bytes([_STDIN]) + _SIZE.pack(0))

    async def _send(self, message: bytes) -> None:
        try:
            await self._socket.send_bytes(message)
        except (aiohttp.ClientError, OSError):
            raise anyio.BrokenResourceError from None
