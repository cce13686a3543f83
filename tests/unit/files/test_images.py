"""The kind and size of images are read from their data, and no bytes break the reading."""

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.files.artifacts import describe
from llm_sandbox_mcp.files.images import Image, identify

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
EXIF = b"\xff\xe1" + struct.pack(">H", 60_000) + bytes(59_998)
TABLE = b"\xff\xc4\x00\x04\0\0"
FRAME = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", 20, 30)
SVG = b'xmlns="http://www.w3.org/2000/svg"'


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("image/png", PNG + struct.pack(">II", 30, 20)),
        ("image/gif", b"GIF89a" + struct.pack("<HH", 30, 20)),
        ("image/jpeg", b"\xff\xd8" + FRAME),
        ("image/jpeg", b"\xff\xd8" + EXIF + EXIF + TABLE + b"\xff" + FRAME),
        ("image/webp", b"RIFF----WEBPVP8 ----" + bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 30 | 0x4000, 20)),
        ("image/webp", b"RIFF----WEBPVP8L----/" + struct.pack("<I", 29 | 19 << 14) + bytes(5)),
        ("image/webp", b"RIFF----WEBPVP8X----" + bytes(4) + b"\x1d\0\0\x13\0\0"),
        ("image/svg+xml", b'<svg width="30" height="20"/>'),
        ("image/svg+xml", b"<svg " + SVG + b" width='22.5pt' height='15pt' viewBox='0 0 1 1'>"),
        ("image/svg+xml", b'<svg stroke-width="9" width="100%" viewBox="-5,-5 30 20">'),
        (
            "image/svg+xml",
            b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- <svg> -->\n<!DOCTYPE svg>\n<svg viewBox='0 0 30 20'>",
        ),
    ],
)
def test_the_size_of_each_kind_is_read(kind: str, data: bytes) -> None:
    assert identify(data) == identify(data + b"\xff" * 9) == Image(kind, 30, 20)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        PNG,
        PNG + bytes(8),
        PNG + b"\xff" * 8,
        b"GIF89a",
        b"RIFF----WAVEfmt " + bytes(20),
        b"\xff\xd8\xff\xda" + FRAME,
        b"\xff\xd8" + b"\xff\xe0\x00\x00" * 10,
        b"<html><svg width='3' height='2'></html>",
        b"<svg>",
        b"<svg width='0' height='2'>",
        b"<svg viewBox='0 0 x y'>",
        b"<!-- <svg width='3' height='2'>",
        b"<svgs width='3' height='2'>",
    ],
)
def test_data_that_is_not_an_image_or_has_no_size_gives_nothing(data: bytes) -> None:
    assert identify(data) is None


@pytest.mark.parametrize("marker", range(0xC0, 0xFF))
def test_the_size_of_a_jpeg_is_in_its_first_frame(marker: int) -> None:
    other = bytes((0xFF, marker, 0, 17, 8)) + struct.pack(">HH", 2, 3) + bytes(10)
    found = identify(b"\xff\xd8" + other + FRAME)
    if marker < 0xD0 and marker not in (0xC4, 0xC8, 0xCC):
        assert found == Image("image/jpeg", 3, 2)
    elif marker <= 0xDA and marker >= 0xD0:  # what follows is data, or nothing
        assert found is None
    else:
        assert found == Image("image/jpeg", 30, 20)


@pytest.mark.parametrize("inch", ["1in", "2.54cm", "25.4mm", "6pc", "72pt", "96px", "96"])
def test_lengths_of_an_svg_are_in_pixels(inch: str) -> None:
    assert identify(f"<svg width='{inch}' height='{inch}'>".encode()) == Image("image/svg+xml", 96, 96)
    assert identify(f"<svg width='{inch}' height='1em'>".encode()) is None


_STARTS = st.sampled_from(
    [PNG, b"GIF87a", b"\xff\xd8\xff", b"RIFF----WEBPVP8 ", b"RIFF----WEBPVP8L", b"RIFF----WEBPVP8X", b"<svg ", b"<!--"]
)


@given(start=_STARTS | st.just(b""), rest=st.binary(max_size=200))
def test_no_bytes_break_the_reading(start: bytes, rest: bytes) -> None:
    image = identify(start + rest)
    assert image is None or (image.width > 0 and image.height > 0)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    identify(f"<svg {text}>".encode("utf-8", "replace"))


@pytest.mark.parametrize(
    "part",
    [b"\xff", b"\xff\xe0\x00\x02", b"<!--", b"<!---->", b"<svg width=", b"<svg " + b"width ", b"<?", b" "],
)
def test_long_hostile_content_is_read_quickly(part: bytes) -> None:
    start = time.perf_counter()
    for head in (b"\xff\xd8\xff", b"<svg ", b""):
        identify(head + part * (1 << 20))
    assert time.perf_counter() - start < 10  # takes minutes unless the time is linear


def test_an_artifact_has_a_size_only_if_its_data_matches_its_name() -> None:
    data = PNG + struct.pack(">II", 30, 20)
    assert (describe("a.png", data).width, describe("a.png", data).height) == (30, 20)
    assert describe("a.jpg", data).width == 0
    assert describe("a.html", b'<svg width="30" height="20"/>').width == 0
