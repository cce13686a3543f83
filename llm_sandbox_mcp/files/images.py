"""The kind and size of an image, read from its first bytes. They come from a sandbox and are not trusted."""

import re
from dataclasses import dataclass

_READ = 1 << 18
"""Bytes that are read: in a JPEG, the size can come after a colour profile and a preview of about 64 KiB each."""
_LARGEST = 1 << 31
_SEGMENTS = 2000
"""Segments of a JPEG that are read."""
_PROLOGUE = (("<?", "?>"), ("<!--", "-->"), ("<!DOCTYPE", ">"))
"""What can precede the root element of an SVG."""
_ROOT = re.compile(r"<(?:svg:)?svg\b([^<>]*)>")
_SIZES = re.compile(r"""(?<![\w:-])(width|height|viewBox)\s*=\s*["']([^"'<>]*)["']""")
_LENGTH = re.compile(r"\s*([0-9]{1,7}(?:\.[0-9]{1,9})?)\s*([a-z]{0,2})\s*")
_UNITS = {"": 1.0, "px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 96 / 2.54, "mm": 96 / 25.4}


@dataclass(frozen=True, slots=True)
class Image:
    """An image, as its own bytes describe it."""

    mime_type: str
    width: int
    """Pixels, like `height`; both are above zero."""
    height: int


def identify(data: bytes) -> Image | None:
    """The kind and size of a PNG, JPEG, GIF, WebP or SVG image; None for anything else. It never raises."""
    head = bytes(data[:_READ])
    for mime_type, signature, measure in _KINDS:
        if head.startswith(signature):
            size = measure(head)
            if size is not None and 0 < size[0] < _LARGEST and 0 < size[1] < _LARGEST:
                return Image(mime_type, *size)
            return None
    return None


_Size = tuple[int, int] | None


def _png(head: bytes) -> _Size:
    return (_big(head, 16, 4), _big(head, 20, 4)) if head[12:16] == b"IHDR" and len(head) >= 24 else None


def _gif(head: bytes) -> _Size:
    return (_little(head, 6, 2), _little(head, 8, 2)) if len(head) >= 10 else None


def _webp(head: bytes) -> _Size:
    if len(head) < 30 or head[8:12] != b"WEBP":
        return None
    match head[12:16]:
        case b"VP8X":
            return _little(head, 24, 3) + 1, _little(head, 27, 3) + 1
        case b"VP8L" if head[20] == 0x2F:
            bits = _little(head, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 " if head[23:26] == b"\x9d\x01\x2a":
            return _little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF
    return None


def _jpeg(head: bytes) -> _Size:
    at = 2
    for _ in range(_SEGMENTS):
        if at + 9 > len(head) or head[at] != 0xFF:
            break
        marker = head[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame, not a table
            return _big(head, at + 7, 2), _big(head, at + 5, 2)
        elif 0xD0 <= marker <= 0xDA:  # the pixel data begins, or the image ends, before its size was found
            break
        else:
            at += 2 + max(2, _big(head, at + 2, 2))
    return None


def _svg(head: bytes) -> _Size:
    text = head[:8192].decode("utf-8-sig", "replace").lstrip()
    while closing := next((closing for opening, closing in _PROLOGUE if text.startswith(opening)), ""):
        text = text.partition(closing)[2].lstrip()
    root = _ROOT.match(text)
    if root is None:
        return None
    values = dict(_SIZES.findall(root[1]))
    width, height = _pixels(values.get("width", "")), _pixels(values.get("height", ""))
    if width and height:
        return width, height
    box = [_pixels(part) for part in re.split(r"[\s,]+", values.get("viewBox", "").strip())]
    return (box[2], box[3]) if len(box) == 4 else None


def _pixels(length: str) -> int:
    match = _LENGTH.fullmatch(length)
    return round(float(match[1]) * _UNITS.get(match[2], 0)) if match else 0


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


_KINDS = (
    ("image/png", b"\x89PNG\r\n\x1a\n", _png),
    ("image/jpeg", b"\xff\xd8\xff", _jpeg),
    ("image/gif", (b"GIF87a", b"GIF89a"), _gif),
    ("image/webp", b"RIFF", _webp),
    ("image/svg+xml", (b"<", b"\xef\xbb\xbf<", b" ", b"\n", b"\r", b"\t"), _svg),
)
