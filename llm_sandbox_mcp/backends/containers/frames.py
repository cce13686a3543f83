"""The frames between a relay in a container and the server, without I/O: each has a kind, a connection and a payload.

The relay opens connections. Both sides send `DATA`, at most `WINDOW` bytes more than the `TAKEN` frames from the other
side reported as taken. `END` ends the data of one direction. `CLOSE` is the last frame from one side; a connection is
gone once both sides have sent it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

LISTENING, OPEN, DATA, TAKEN, END, CLOSE = b"LODTEC"
"""Kinds of frames; the payload of `LISTENING` is the port, that of `TAKEN` a number of bytes."""

CONNECTIONS = 64
WINDOW = 1 << 18
"""Maximum bytes in one direction of a connection that are in transit or wait for their reader."""
PAYLOAD = 1 << 16

_HEAD = struct.Struct(">BII")
_NUMBER = struct.Struct(">I")


class Malformed(ValueError):
    """The data received is not what a relay sends."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame."""

    kind: int
    connection: int
    payload: bytes = b""

    def encode(self) -> bytes:
        return _HEAD.pack(self.kind, self.connection, len(self.payload)) + self.payload

    @property
    def number(self) -> int:
        """The payload as a number; raises `Malformed` if it is not one."""
        if len(self.payload) != _NUMBER.size:
            raise Malformed("it sent a frame without the number that belongs in it")
        return int(_NUMBER.unpack(self.payload)[0])


def numbered(kind: int, connection: int, number: int) -> Frame:
    """A frame whose payload is a number."""
    return Frame(kind, connection, _NUMBER.pack(number))


class FrameReader:
    """Turns bytes into whole frames as they arrive; it never buffers more than one frame and the last bytes."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that the bytes complete; raises `Malformed` at the first that is not valid."""
        self._pending += data
        start = 0
        try:
            while len(self._pending) - start >= _HEAD.size:
                kind, connection, size = _HEAD.unpack_from(self._pending, start)
                if kind not in b"LODTEC" or size > PAYLOAD:
                    raise Malformed("it sent something that is not a frame")
                end = start + _HEAD.size + size
                if len(self._pending) < end:
                    return
                payload = bytes(self._pending[start + _HEAD.size : end])
                start = end
                yield Frame(kind, connection, payload)
        finally:
            del self._pending[:start]
