"""Output between two looks at a run: nothing is lost below the limit, and beyond it the end is kept."""

from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.service.output import NewOutput


@given(st.lists(st.text(), max_size=20), st.integers(1, 30))
def test_the_end_is_kept_and_the_rest_is_counted(parts: list[str], limit: int) -> None:
    new = NewOutput(limit)
    for part in parts:
        new.add(part)
    whole = "".join(parts)
    taken = new.take()
    assert taken.text == whole[-limit:]
    assert taken.omitted == len(whole[:-limit].encode(errors="replace"))
    assert new.take().text == ""
