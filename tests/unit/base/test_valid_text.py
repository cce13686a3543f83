"""Text that is not valid Unicode becomes valid, and nothing else changes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from llm_sandbox_mcp.base.text import is_text, mended_json, valid, valid_json

ANY_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("\ud800\udbff\udc00\udfff"))
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=8,
)
IN_STRINGS = st.lists(
    st.sampled_from(
        [
            *(rb"\ud83d", rb"\uDBFF", rb"\uDe00", rb"\uDFFF", rb"\u0041", rb"\ud7ff", rb"\ue000", rb"\ufffd"),
            *(rb"\\", rb"\n", rb"\"", b"ud800", b"u", b"a", "é".encode(), "\U0001f600".encode()),
            *(b"\xff", b"\xf0\x9f", b"\xed\xa0\x80"),
        ]
    )
).map(b"".join)
"""What a string of JSON can contain, and bytes that are not UTF-8."""


def plainly(value: object) -> object:
    """The value with U+FFFD for surrogates, character by character."""
    match value:
        case str():
            return "".join("\ufffd" if 0xD800 <= ord(character) <= 0xDFFF else character for character in value)
        case list():
            return [plainly(item) for item in value]
        case dict():
            return {plainly(name): plainly(item) for name, item in value.items()}
    return value


@given(ANY_TEXT)
def test_text_becomes_valid(text: str) -> None:
    assert valid(text) == plainly(text)
    assert is_text(text) == (plainly(text) == text)


@given(ANY_VALUE)
def test_a_value_becomes_valid_with_all_names_and_values_inside(value: object) -> None:
    assert valid_json(value) == plainly(value)


@given(st.lists(IN_STRINGS, min_size=2, max_size=2))
def test_json_is_mended_as_if_each_string_were_read_and_its_surrogates_replaced(strings: list[bytes]) -> None:
    data = b'{"%b": ["%b", 1.50e1]}' % tuple(strings)
    mended = mended_json(data)
    assert json.loads(mended) == plainly(json.loads(data.decode(errors="replace"))) == from_json(mended)


@given(ANY_VALUE, st.booleans())
def test_valid_json_stays_as_it_is(value: object, escaped: bool) -> None:
    data = json.dumps(plainly(value), ensure_ascii=escaped).encode()
    assert mended_json(data) == data


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le"])
def test_json_in_another_encoding_stays_as_it_is(encoding: str) -> None:
    data = r'"\ud800"'.encode(encoding)
    assert mended_json(data) == data


def test_a_split_pair_is_not_joined_over_an_escaped_backslash() -> None:
    assert mended_json(rb'"\ud83d\\ude00 \\ud83d\ude00 \\\ud83d"') == rb'"\ufffd\\ude00 \\ud83d\ufffd \\\ufffd"'
    assert not re.search(rb"[^\\]\\ud83d", mended_json(rb'"\ud83d\ud83d\ud83d"'))
