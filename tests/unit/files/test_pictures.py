"""A model is shown only complete images, up to the last byte, of a size that the APIs of models accept."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.results import Artifact
from llm_sandbox_mcp.files.images import identify
from llm_sandbox_mcp.files.pictures import LARGEST, LONGEST, can_be_shown, choose, may_be_shown
from tests.pictures import GIF, JPEG, SIGNATURE, WEBP, chunk, png

PNG = png(3, 2)
WHOLE = {"png": PNG, "gif": GIF, "jpeg": JPEG, "webp": WEBP}
HEADER = struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0)


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
def test_a_whole_image_is_shown_but_not_a_part_of_it(data: bytes) -> None:
    assert identify(data) is not None
    assert can_be_shown(data)
    assert not any(can_be_shown(data[:size]) for size in range(len(data)))


@pytest.mark.parametrize(
    ("colour", "depth", "row"), [(0, 1, 1), (0, 16, 6), (2, 8, 9), (2, 16, 18), (4, 8, 6), (6, 8, 12), (6, 16, 24)]
)
def test_a_png_of_each_kind_is_shown(colour: int, depth: int, row: int) -> None:
    assert can_be_shown(png(3, 2, colour=colour, depth=depth, rows=bytes(2 * (1 + row))))
    assert not can_be_shown(png(3, 2, colour=colour, depth=depth, rows=bytes(2 * (1 + row) + 1)))
    assert not can_be_shown(png(3, 2, colour=colour, depth=depth, rows=bytes(2 * (1 + row) - 1)))


DEPTHS = {0: {1, 2, 4, 8, 16}, 2: {8, 16}, 3: {1, 2, 4, 8}, 4: {8, 16}, 6: {8, 16}}
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Of the kinds of colour that there are."""


@pytest.mark.parametrize("colour", range(8))
def test_a_png_has_a_kind_of_colour_and_one_of_its_depths(colour: int) -> None:
    for depth in range(33):
        rows = bytes(2 * (1 + -(-3 * depth * CHANNELS.get(colour, 1) // 8)))
        header = struct.pack(">IIBBBBB", 3, 2, depth, colour, 0, 0, 0)
        parts = [(b"IHDR", header), (b"PLTE", bytes(3)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
        data = SIGNATURE + b"".join(chunk(*part) for part in parts)
        assert can_be_shown(data) == (depth in DEPTHS.get(colour, ())), depth


@pytest.mark.parametrize("header", [(8, 0, 1, 0, 0), (8, 0, 0, 1, 0), (8, 0, 0, 0, 2)])
def test_a_png_of_another_compression_filter_or_interlacing_is_not_shown(header: tuple[int, ...]) -> None:
    changed = chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 2, *header))
    assert not can_be_shown(SIGNATURE + changed + PNG[len(SIGNATURE) + len(changed) :])


PASSES = ("16462646", "77777777", "56565656", "77777777", "36463646", "77777777", "56565656", "77777777")
"""The pass of each pixel of an interlaced PNG, as its specification shows them."""


@pytest.mark.parametrize("depth", [4, 8])
@pytest.mark.parametrize("width", range(1, 18))
def test_an_interlaced_png_has_the_rows_of_seven_smaller_images(width: int, depth: int) -> None:
    for height in range(1, 18):
        rows = [[PASSES[y % 8][x % 8] for x in range(width)] for y in range(height)]
        size = sum(1 + -(-row.count(one) * depth // 8) for one in "1234567" for row in rows if one in row)
        assert can_be_shown(png(width, height, depth=depth, interlace=1, rows=bytes(size))), height
        assert not can_be_shown(png(width, height, depth=depth, interlace=1, rows=bytes(size + 1))), height


def test_an_interlaced_png_is_shown() -> None:
    # Pixels in each of the seven passes of a 3 x 2 image: 1, 0, 0, 1, 0, 1, 3.
    assert can_be_shown(png(3, 2, interlace=1, rows=bytes(2 + 2 + 2 + 4)))
    assert can_be_shown(png(8, 8, interlace=1, rows=bytes(2 + 2 + 3 + 2 * 3 + 2 * 5 + 4 * 5 + 4 * 9)))


@pytest.mark.parametrize(
    ("width", "height", "shown"),
    [(LONGEST, 1, True), (LONGEST + 1, 1, False), (1, LONGEST + 1, False), (8000, 5000, True), (8000, 5001, False)],
)
def test_the_size_of_an_image_is_limited(width: int, height: int, shown: bool) -> None:
    assert can_be_shown(png(width, height)) == shown


def test_a_file_of_a_million_bytes_is_shown_but_not_a_larger_one() -> None:
    for size in (LARGEST, LARGEST + 1):
        data = SIGNATURE + chunk(b"IHDR", HEADER) + chunk(b"tEXt", bytes(size - len(PNG) - 12)) + PNG[33:]
        assert len(data) == size
        assert can_be_shown(data) == (size == 1_000_000)
        assert may_be_shown(Artifact("a", "image/png", size, width=3, height=2)) == (size == 1_000_000)
    assert not may_be_shown(Artifact("a", "image/svg+xml", 1, width=3, height=2))
    assert not may_be_shown(Artifact("a", "image/png", 1))


NOT_SHOWN = {
    "a header alone": SIGNATURE + chunk(b"IHDR", HEADER)[:16],
    "two thousand million pixels": SIGNATURE
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 0, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(bytes(8)))
    + chunk(b"IEND", b""),
    "no image data": SIGNATURE + chunk(b"IHDR", HEADER) + chunk(b"IEND", b""),
    "garbage as image data": SIGNATURE + chunk(b"IHDR", HEADER) + chunk(b"IDAT", b"x" * 50) + chunk(b"IEND", b""),
    "a wrong checksum": PNG[:-1] + b"x",
    "image data that unpacks to far more": png(3, 2, rows=bytes(50_000_000)),
    "image data that would unpack to 320 million bytes": png(8000, 5000, depth=16, colour=6),
    "80,000 empty chunks": SIGNATURE + chunk(b"IHDR", HEADER) + 80_000 * chunk(b"tEXt", b"") + PNG[33:],
    "a million bytes": PNG[:-12] + chunk(b"tEXt", bytes(1_000_000)) + PNG[-12:],
    "a padded jpeg": JPEG[:71] + b"\xff" * 100_000 + JPEG[71:],
    "a jpeg of 200,000 empty segments": JPEG[:88] + b"\xff\xe0\0\2" * 200_000 + JPEG[88:],
    "a gif of 300,000 tiny blocks": GIF[:21] + b"\1x" * 300_000 + GIF[21:],
    "a gif of 30,000 images": GIF[:-1] + 30_000 * GIF[27:-1] + b";",
    "a webp of 100,000 empty chunks": WEBP[:4]
    + struct.pack("<I", len(WEBP) + 799_992)
    + WEBP[8:]
    + 100_000 * b"TINY\0\0\0\0",
    "an unknown kind": png(3, 2, colour=5),
    "an invalid bit depth": png(3, 2, colour=2, depth=4),
    "colours without a palette": png(3, 2, colour=3),
    "a gif without image data": GIF[:19] + b";",
    "a webp of another length": WEBP + b"xx",
    "a webp without image data": b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(10),
    "an svg": b'<svg width="30" height="20"/>',
    "text": b"text",
}


@pytest.mark.parametrize("data", NOT_SHOWN.values(), ids=NOT_SHOWN)
def test_data_that_only_begins_like_an_image_is_not_shown(data: bytes) -> None:
    assert not can_be_shown(data)


@given(st.sampled_from([*WHOLE.values()]), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=5))
def test_no_change_breaks_the_reading(data: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(data)
    for at, value in changes:
        changed[at % len(data)] = value
    if can_be_shown(bytes(changed)):
        assert identify(bytes(changed)) is not None


@given(st.sampled_from([*WHOLE.values()]), st.integers(0, 60), st.binary(max_size=200))
def test_no_bytes_break_the_reading(data: bytes, kept: int, rest: bytes) -> None:
    can_be_shown(data[:kept] + rest)


@pytest.mark.parametrize(
    ("width", "height", "shown"), [(8000, 5000, True), (8001, 1, False), (1, 8001, False), (6400, 6251, False)]
)
def test_the_pixels_of_a_picture_are_limited_before_it_is_read(width: int, height: int, shown: bool) -> None:
    assert may_be_shown(Artifact("a", "image/png", 1, width=width, height=height)) == shown


@pytest.mark.anyio
async def test_each_picture_is_shown_once_as_it_is_or_is_among_the_rest() -> None:
    contents = {f"{number}.png": b"%d" % min(number, 5) for number in range(4, 9)} | {"broken.png": None, "b.png": b"b"}
    found = [Artifact(name, "image/png", 1, 3, 2) for name in contents]
    found += [Artifact("c.png", "image/png", 1, 3, 2), Artifact("d.png", "image/png", 1, 3, 2)]
    found += [
        Artifact("large.png", "image/png", 1, 9000, 2),
        Artifact("text.png", "image/png", 1),
        Artifact("a", "text/csv", 1),
    ]
    asked = []

    async def look(name: str) -> bytes | None:
        asked.append(name)
        return contents.get(name, name.encode())

    chosen = await choose(found, look)
    assert chosen.whole == {"4.png": b"4", "5.png": b"5", "b.png": b"b", "c.png": b"c.png"}
    assert [artifact.name for artifact in chosen.rest] == ["broken.png", "d.png", "large.png"]
    assert chosen.broken == {"broken.png"}
    assert asked == [*contents, "c.png"]
