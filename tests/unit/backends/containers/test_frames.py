"""The frames of a relay, for any way to split the data and any bytes."""

import itertools
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.containers.frames import (
    CLOSE,
    DATA,
    END,
    LISTENING,
    OPEN,
    PAYLOAD,
    TAKEN,
    Frame,
    FrameReader,
    Malformed,
    numbered,
)

FRAMES = st.builds(
    Frame,
    st.sampled_from([LISTENING, OPEN, DATA, TAKEN, END, CLOSE]),
    st.integers(0, 2**32 - 1),
    st.one_of(st.binary(max_size=40), st.just(b"x" * PAYLOAD)),
)


def portions(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0), max_size=8))
def test_frames_arrive_unchanged_however_they_are_split(frames: list[Frame], cuts: list[int]) -> None:
    reader = FrameReader()
    sent = b"".join(frame.encode() for frame in frames)
    assert [frame for part in portions(sent, cuts) for frame in reader.feed(part)] == frames


@given(st.binary(max_size=200), st.lists(st.integers(0), max_size=4))
def test_any_bytes_are_either_frames_or_refused(data: bytes, cuts: list[int]) -> None:
    reader = FrameReader()
    read: list[Frame] = []
    with suppress(Malformed):
        for part in portions(data, cuts):
            read += reader.feed(part)
    assert data.startswith(b"".join(frame.encode() for frame in read))


@pytest.mark.parametrize("head", [b"X" + bytes(8), b"D" + bytes(4) + (PAYLOAD + 1).to_bytes(4, "big")])
def test_a_frame_of_unknown_kind_or_too_long_is_refused_before_the_rest_of_it_arrives(head: bytes) -> None:
    with pytest.raises(Malformed):
        list(FrameReader().feed(head))


@given(st.integers(0, 2**32 - 1))
def test_a_number_is_read_as_it_was_sent(number: int) -> None:
    assert numbered(TAKEN, 1, number).number == number


@pytest.mark.parametrize("payload", [b"", b"123", b"12345"])
def test_a_number_of_another_length_is_refused(payload: bytes) -> None:
    with pytest.raises(Malformed):
        _ = Frame(TAKEN, 1, payload).number
