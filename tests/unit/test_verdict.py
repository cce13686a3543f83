"""What of a stream is shown."""

import re

from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.verdict import shown

GAP = re.compile(r"\n\[\.\.\. [^\n]* left out \.\.\.\]\n")


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode), st.integers(1, 400))
def test_what_fits_is_shown_whole_and_of_the_rest_head_and_tail(data: bytes, limit: int) -> None:
    output = shown(data, limit)
    if len(data) <= limit:
        assert output.omitted == 0
        assert output.text == data.decode(errors="replace").replace("\0", "\ufffd")
    else:
        assert 0 < output.omitted <= len(data)
        assert len(data) - output.omitted <= limit


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200), st.integers(1, 300))
def test_cuts_fall_between_characters_and_omitted_is_exact(text: str, limit: int) -> None:
    data = text.encode()
    output = shown(data, limit)
    assert not output.replaced
    if output.omitted:
        head, tail = next((output.text[: m.start()], output.text[m.end() :]) for m in GAP.finditer(output.text))
        assert text.startswith(head) and text.endswith(tail)
        assert len(head.encode()) + len(tail.encode()) + output.omitted == len(data)


def test_bytes_that_are_no_text_are_replaced_and_said_so() -> None:
    assert shown(b"a\xffb\0c", 100).text == "a\ufffdb\ufffdc"
    assert shown(b"a\xffb", 100).replaced
    assert shown(b"a\0b", 100).replaced
    assert not shown("é".encode(), 100).replaced
