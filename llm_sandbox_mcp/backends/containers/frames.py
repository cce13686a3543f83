"""What crosses between a relay in a container and the server, sans-I/O: frames of a kind, a connection and a payload.

The relay opens connections and both sides send `DATA`, at most `WINDOW` bytes more than `TAKEN` frames said were taken.
`END` ends the data of one direction. `CLOSE` is the last frame of a side; a connection is gone once both have sent it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

LISTENING, OPEN, DATA, TAKEN, END, CLOSE = b"LODTEC"
"""Kinds of frames; the payload of `LISTENING` is the port, that of `TAKEN` a number of bytes."""

CONNECTIONS = 64
WINDOW = 1 << 18
"""Bytes of one direction of a connection that may be on their way, or wait for their reader."""
PAYLOAD = 1 << 16

_HEAD = struct.Struct(">BII")
_NUMBER = struct.Struct(">I")


class Malformed(ValueError):
    """What arrived is not what a relay sends."""


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
        """The payload as a number; `Malformed` when it is none."""
        if len(self.payload) != _NUMBER.size:
            raise Malformed("a number was announced and something else came")
        return int(_NUMBER.unpack(self.payload)[0])


def numbered(kind: int, connection: int, number: int) -> Frame:
    """A frame whose payload is a number."""
    return Frame(kind, connection, _NUMBER.pack(number))


class FrameReader:
    """Takes bytes as they come and gives whole frames; it never holds more than one frame and what came last."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that the bytes complete; `Malformed` at the first that cannot be one, and nothing after it."""
        self._pending += data
        start = 0
        try:
            while len(self._pending) - start >= _HEAD.size:
                kind, connection, size = _HEAD.unpack_from(self._pending, start)
                if kind not in b"LODTEC" or size > PAYLOAD:
                    raise Malformed("it sent what is no frame")
                end = start + _HEAD.size + size
                if len(self._pending) < end:
                    return
                payload = bytes(self._pending[start + _HEAD.size : end])
                start = end
                yield Frame(kind, connection, payload)
        finally:
            del self._pending[:start]
