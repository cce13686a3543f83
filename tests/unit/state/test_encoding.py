"""Saved sessions as bytes: what was written comes back, and nothing else is ever taken for it."""

from collections.abc import Mapping, Sequence

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.state import encoding
from llm_sandbox_mcp.state.encoding import CHUNK, HEAD, RECORD_SIZE, TAIL_SIZE, Damaged, Decoder, Encoder, Section

MANIFEST = b'{"format": 1}'
CONTENTS = {"files": [b"a" * 1000, b"b", b""], "artifacts": [bytes(range(256))]}


def encoded(contents: Mapping[str, Sequence[bytes]], manifest: bytes = MANIFEST) -> tuple[bytes, Sequence[Section]]:
    encoder, sections = Encoder(), list[Section]()
    parts = [HEAD]
    for name, chunks in contents.items():
        encoder.begin(name)
        parts += [encoder.chunk(chunk) for chunk in chunks]
        sections.append(encoder.section)
    return b"".join((*parts, encoder.end(manifest))), sections


def decoded(state: bytes, section: Section) -> list[bytes]:
    decoder, found = Decoder(section), list[bytes]()
    while decoder.left:
        record = state[decoder.at : decoder.at + RECORD_SIZE]
        start = decoder.at + len(record)
        found.append(decoder.chunk(record, state[start : start + decoder.length(record)]))
    return found


def manifest_of(state: bytes) -> bytes:
    place = encoding.place_of_manifest(state[-TAIL_SIZE:])
    return encoding.manifest_in(state[place:-TAIL_SIZE], place)


@given(st.dictionaries(st.text(max_size=5), st.lists(st.binary(max_size=2000), max_size=4), max_size=3), st.binary())
def test_what_was_written_comes_back(contents: dict[str, list[bytes]], manifest: bytes) -> None:
    state, sections = encoded(contents, manifest)
    assert manifest_of(state) == manifest
    assert {section.name: decoded(state, section) for section in sections} == contents
    assert [section.size for section in sections] == [sum(map(len, chunks)) for chunks in contents.values()]


def read_all(state: bytes, sections: Sequence[Section]) -> bytes:
    return b"".join((manifest_of(state), *(part for section in sections for part in decoded(state, section))))


@given(st.data())
def test_a_changed_byte_anywhere_is_found(data: st.DataObject) -> None:
    state, sections = encoded(CONTENTS)
    at = data.draw(st.integers(len(HEAD), len(state) - 1))
    changed = state[:at] + bytes([state[at] ^ data.draw(st.integers(1, 255))]) + state[at + 1 :]
    with pytest.raises(Damaged):
        read_all(changed, sections)


@given(st.data())
def test_bytes_that_are_missing_at_the_end_are_found(data: st.DataObject) -> None:
    state, sections = encoded(CONTENTS)
    with pytest.raises(Damaged):
        read_all(state[: data.draw(st.integers(0, len(state) - 1))], sections)


def test_a_section_is_known_as_far_as_it_is_written_and_says_which_object_has_it() -> None:
    encoder = Encoder()
    for name in ("files", "artifact"):
        encoder.begin(name, "object")
        empty = encoder.section
        assert (empty.name, empty.object, empty.chunks, empty.size) == (name, "object", 0, 0)
        assert decoded(b"", empty) == []
        state = bytes(empty.start)
        for number in range(1, 4):
            state += encoder.chunk(b"12345")
            section = encoder.section
            assert (section.name, section.object, section.start) == (name, "object", empty.start)
            assert (section.chunks, section.size) == (number, 5 * number)
            assert decoded(state, section) == [b"12345"] * number
    assert encoder.section.start > len(HEAD)


def test_chunks_that_changed_places_are_found() -> None:
    state, (section,) = encoded({"files": [b"1" * 10, b"2" * 10]})
    length = RECORD_SIZE + len(zstandard.ZstdCompressor(level=1).compress(b"1" * 10))
    start = section.start
    swapped = state[:start] + state[start + length : start + 2 * length] + state[start : start + length]
    with pytest.raises(Damaged, match="checksum"):
        decoded(swapped + state[start + 2 * length :], section)


def test_a_section_of_another_state_is_found() -> None:
    state, _ = encoded({"files": [b"of this state"]})
    _, (other,) = encoded({"files": [b"of that state"]})
    with pytest.raises(Damaged, match="belong together"):
        decoded(state, other)


def test_a_chunk_that_would_unpack_to_more_than_one_holds_is_refused_before_it_takes_memory() -> None:
    encoder = Encoder()
    encoder.begin("files")
    bomb = encoder.chunk(bytes(100 * CHUNK))
    with pytest.raises(Damaged, match="too large"):
        decoded(HEAD + bomb, encoder.section)
