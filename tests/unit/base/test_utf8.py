"""Cuts of UTF-8: no character is split, and nothing else is lost."""

from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.text import LONGEST_CHARACTER, whole_end, whole_start


@given(st.text(), st.integers(0, 40))
def test_a_cut_splits_no_character(text: str, cut: int) -> None:
    data = text.encode()
    head, tail = whole_end(data[:cut]), whole_start(data[cut:])
    assert text.startswith(head.decode())
    assert text.endswith(tail.decode())
    assert len(data) - len(head) - len(tail) in (0, *range(2, LONGEST_CHARACTER + 1))


@given(st.binary(), st.integers(LONGEST_CHARACTER, 20))
def test_parts_of_any_bytes_make_progress(data: bytes, length: int) -> None:
    read = b""
    while (part := data[len(read) :][:length]) and len(read) + len(part) < len(data):
        assert whole_end(part)
        read += whole_end(part)
    assert read + part == data
