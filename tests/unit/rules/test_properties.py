"""Any text can be judged: the result is findings on existing lines, and never an error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_sandbox_mcp.rules.section import Rule
from tests.effort import tries

from .judges import LANGUAGES, judge

RULE = Rule(
    name="a", modules=("os", "a.b"), calls=("eval", "os.system", "`"), strings=("x",), patterns=("y+",), lines=("z+",)
)
PIECES = st.sampled_from(
    [
        "import ",
        "from ",
        " as ",
        "os",
        "a.b",
        ".",
        "(",
        ")",
        "'",
        '"',
        "`",
        "\n",
        "eval",
        "=",
        "require",
        "#",
        "/*",
        "::",
        "\\x6",
        "{",
        "<",
        "\0",
        "$(",
    ]
)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
@settings(max_examples=tries(60))
@given(code=st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join)))
def test_any_text_is_judged(language: str, code: str) -> None:
    text = code.encode(errors="replace")
    for hit in judge(language, RULE).judge(text):
        assert 1 <= hit.line <= text.count(b"\n") + 1
        assert hit.rule == 0
