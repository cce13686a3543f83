"""Checks whether models can look at an image: it is complete, and not larger than their APIs accept.

Some APIs refuse the whole conversation for a file that only begins like an image. The structure of the file is checked,
and a PNG is decompressed, within limits; nothing is decoded, since malicious files attack decoders. The time is limited
for any content: the parts of a file are, and what it unpacks to.
"""

import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from ..base.results import Artifact
from .images import identify

LARGEST = 1_000_000
"""Maximum bytes of an image."""
LONGEST = 8000
"""Maximum pixels of one side."""
MOST = 40_000_000
"""Maximum pixels of one image."""
SHOWN = 4
"""Pictures that one result shows as they are."""
_TRIED = 8
"""Pictures that are read for one result; some can be broken, or the same as others."""
KINDS = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""Media types of images that models can look at."""
_UNPACKED = 5 * MOST
"""Maximum bytes of the rows of one image: enough for four channels of 8 bits."""
_PORTION = 1 << 10
"""Bytes that are unpacked at once; they become a thousand times as many at most."""
_PARTS = 1000
"""Maximum chunks or segments of one image; encoders make them of 8 KiB and more."""
_BLOCKS = 5000
"""Maximum blocks of one GIF; they have 255 bytes, so a million bytes are 4,000 of them."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_ADAM7 = ((0, 8, 0, 8), (4, 8, 0, 8), (0, 4, 4, 8), (2, 4, 0, 4), (0, 2, 2, 4), (1, 2, 0, 2), (0, 1, 1, 2))
"""The start and the step of each pass of an interlaced PNG: first horizontally, then vertically."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures among artifacts, each once."""

    whole: Mapping[str, bytes]
    """The content of those that are shown as they are, by their names."""
    rest: tuple[Artifact, ...]
    """Those that are too large, too many, or broken."""
    broken: frozenset[str] = frozenset()
    """The names of those that were looked at in vain: a part is missing, or they are in the store no longer."""


async def choose(artifacts: Iterable[Artifact], look: Callable[[str], Awaitable[bytes | None]]) -> Pictures:
    """Which of these artifacts are pictures that one result shows; `look` returns the content of one that can be."""
    whole: dict[str, bytes] = {}
    rest: list[Artifact] = []
    broken: set[str] = set()
    tried = 0
    for artifact in filter(_is_picture, artifacts):
        content = None
        if may_be_shown(artifact) and tried < _TRIED and len(whole) < SHOWN:
            tried += 1
            content = await look(artifact.name)
            broken |= {artifact.name} if content is None else set()
        if content is None:
            rest.append(artifact)
        elif content not in whole.values():  # code that shows a figure and saves it makes the same picture twice
            whole[artifact.name] = content
    # An overview of one would cost a model as much.
    if len(rest) == 1 and may_be_shown(rest[0]) and not broken and (content := await look(rest[0].name)) is not None:
        whole[rest.pop().name] = content
    return Pictures(whole, tuple(rest), frozenset(broken))


def may_be_shown(artifact: Artifact) -> bool:
    """Whether a file can be such an image, by what is known about it before its content is checked."""
    return _is_picture(artifact) and artifact.size <= LARGEST and _fits(artifact.width, artifact.height)


def _is_picture(artifact: Artifact) -> bool:
    return artifact.mime_type in KINDS and bool(artifact.width)


def can_be_shown(data: bytes) -> bool:
    """Whether a PNG, JPEG, GIF or WebP image is complete, with at most 8,000 pixels a side and 40 million in total."""
    image = identify(data)
    if image is None or len(data) > LARGEST:
        return False
    if not _fits(image.width, image.height):
        return False
    match image.mime_type:
        case "image/png":
            return _is_png(data)
        case "image/jpeg":
            return _is_jpeg(data)
        case "image/gif":
            return _is_gif(data)
        case "image/webp":
            return _is_webp(data)
    return False


def _fits(width: int, height: int) -> bool:
    return max(width, height) <= LONGEST and width * height <= MOST


def _is_png(data: bytes) -> bool:
    chunks = list(islice(_png_chunks(data), _PARTS))
    if not chunks or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13 or chunks[-1] != (b"IEND", b""):
        return False
    header = chunks[0][1]
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    depth, colour, compression, filtering, interlace = header[8:]
    if depth not in _DEPTHS.get(colour, ()) or compression or filtering or interlace > 1:
        return False
    if colour == 3 and not any(name == b"PLTE" for name, _ in chunks):
        return False
    packed = b"".join(content for name, content in chunks if name == b"IDAT")
    passes = _ADAM7 if interlace else ((0, 1, 0, 1),)
    expected = 0
    for left, across, top, down in passes:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            expected += rows * (1 + -(-columns * depth * _CHANNELS[colour] // 8))
    return _unpacks_to(packed, expected)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and content of each chunk, up to the first that is incomplete or damaged."""
    at = 8
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data) or zlib.crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            return
        yield data[at + 4 : at + 8], data[at + 8 : end]
        at = end + 4


def _unpacks_to(packed: bytes, expected: int) -> bool:
    if expected > _UNPACKED:
        return False
    unpacking = zlib.decompressobj()
    size = 0
    try:
        for at in range(0, len(packed), _PORTION):
            size += len(unpacking.decompress(packed[at : at + _PORTION]))
            if unpacking.eof or size > expected:
                break
    except zlib.error:
        return False
    return unpacking.eof and size == expected


def _is_jpeg(data: bytes) -> bool:
    """Whether it has tables and a scan that is not empty, and ends with the end marker."""
    at, seen = 2, set[int]()
    for _ in range(_PARTS):
        if at + 4 > len(data) or data[at] != 0xFF or 0xDA in seen:
            break
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        seen.add(marker)
        at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return {0xDA, 0xDB} <= seen and at + 2 < len(data) and data.endswith(b"\xff\xd9")


def _is_gif(data: bytes) -> bool:
    at, images = 13 + _colours(data[10]) if len(data) > 13 else len(data), 0
    blocks = iter(range(_BLOCKS))
    for _ in blocks:
        match data[at : at + 1]:
            case b";":
                return images > 0
            case b"!":
                at = _after_blocks(data, at + 2, blocks)
            case b"," if at + 10 < len(data):
                at = _after_blocks(data, at + 11 + _colours(data[at + 9]), blocks)
                images += 1
            case _:
                break
    return False


def _colours(flags: int) -> int:
    """The size in bytes of the colour table that follows; 0 if there is none."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(data: bytes, at: int, blocks: Iterator[int]) -> int:
    for _ in blocks:
        if at >= len(data) or not data[at]:
            break
        at += 1 + data[at]
    return at + 1


def _is_webp(data: bytes) -> bool:
    if 8 + int.from_bytes(data[4:8], "little") != len(data):
        return False
    at, names = 12, set[bytes]()
    for _ in range(_PARTS):
        if at + 8 > len(data):
            break
        names.add(data[at : at + 4])
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    return at == len(data) and bool(names & {b"VP8 ", b"VP8L", b"ANMF"})
