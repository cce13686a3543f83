"""Small but complete images for tests."""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(
    width: int, height: int, *, depth: int = 8, colour: int = 0, interlace: int = 0, rows: bytes | None = None
) -> bytes:
    """A PNG with one channel of one byte, all black; `rows` replaces its rows, which include the filter bytes."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    content = bytes(height * (1 + width)) if rows is None else rows
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")


def chunk(name: bytes, content: bytes) -> bytes:
    """One part of a PNG."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


GIF = b"GIF89a" + struct.pack("<HH", 3, 2) + b"\x80\0\0" + bytes(6) + b"!\xf9\x04" + bytes(5)
GIF += b"," + struct.pack("<HHHH", 0, 0, 3, 2) + b"\0" + b"\x02\x02\x84\x51\0;"
JPEG = b"\xff\xd8\xff\xdb\0\x43\0" + bytes(64) + b"\xff\xc0\0\x0b\x08\0\x02\0\x03\x01\x01\x11\0"
JPEG += b"\xff\xc4\0\x14\0" + bytes(17) + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + b"\x54\xff\xd9"
_FRAME = b"VP8 " + struct.pack("<I", 11) + bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 3, 2) + b"x\0"
WEBP = b"RIFF" + struct.pack("<I", 4 + len(_FRAME)) + b"WEBP" + _FRAME
