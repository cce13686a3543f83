"""Hints skip code that cannot match: the rules find the same as when all code is checked."""

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llm_sandbox_mcp.rules.hints import NameHint, anywhere
from llm_sandbox_mcp.rules.section import Rule
from tests.effort import tries

from . import test_calls, test_imports
from .judges import LANGUAGES, found, judge

EVERYTHING = Rule(name="everything", calls=("?",), strings=("(?!)",))
"""A rule that gives no hint, so that all code is checked."""
GLUE = [
    "\n",
    "; ",
    "x = ",
    "y = x\n",
    "y(1)\n",
    "'",
    '"',
    "\\",
    "\uff4fs",
    "\\x6f",
    "# ",
    "(",
    ")",
    " as ",
    ".run",
    "1",
]
PATTERNS = st.lists(
    st.sampled_from(
        [
            r"a",
            r"b",
            r"^",
            r"$",
            r"\b",
            r"\B",
            r"\A",
            r"\Z",
            r".",
            r"[^a]",
            r"[]^b]",
            r"(",
            r")",
            r"(?:",
            r"|",
            r"*",
            r"+",
            r"?",
            r"{2}",
            r"{1,}",
            r"\w",
            r"\s",
            r"\.",
            r"(?=",
            r"(?!",
            r"(?<!",
            r"(?>",
            r"\1",
            r"++",
            r"(?i)",
            r"{e<=1}",
            r"(*FAIL)",
        ]
    ),
    min_size=1,
    max_size=8,
).map("".join)


def known(language: str) -> tuple[Rule, list[str]]:
    """A rule for all names in the tables of a language, and the code in these tables."""
    calls = {**test_calls.NOT_FOUND[language], **test_calls.FOUND[language]}
    modules = {**test_imports.NOT_FOUND[language], **test_imports.FOUND[language]}
    tables = (
        test_calls.FOUND,
        test_calls.NOT_FOUND,
        test_imports.FOUND,
        test_imports.NOT_FOUND,
    )
    code = [text for table in tables for texts in table[language].values() for text in texts]
    named = tuple(name for name in calls if name != "`")
    return Rule(name="names", calls=named, modules=tuple(modules), strings=("^o", "s$")), code


@pytest.mark.parametrize("language", sorted(LANGUAGES))
@settings(max_examples=tries(100))
@given(data=st.data())
def test_rules_find_the_same_as_when_all_code_is_checked(language: str, data: st.DataObject) -> None:
    rule, code = known(language)
    chosen = data.draw(st.lists(st.sampled_from([*code, *GLUE]), max_size=6))
    text = data.draw(st.sampled_from(["", "\n"])).join(chosen).encode()
    quick = judge(language, rule).judge(text)
    thorough = judge(language, rule, EVERYTHING).judge(text)
    assert quick == [hit for hit in thorough if hit.rule == 0]


@settings(max_examples=tries(200))
@given(pattern=PATTERNS, text=st.text('ab. ^\n"', max_size=12), start=st.integers(0, 12), end=st.integers(0, 12))
def test_if_a_pattern_matches_in_a_string_its_hint_matches_in_the_code(
    pattern: str, text: str, start: int, end: int
) -> None:
    try:
        compiled = regex.compile(pattern)
    except regex.error:
        assume(False)
    hint = anywhere(pattern)
    if hint is not None and compiled.search(text[start:end], timeout=1):
        assert hint.search(text, timeout=1)


@pytest.mark.parametrize("pattern", ["^/etc/(passwd|shadow)", r"\bAKIA[0-9A-Z]{16}\b", "a b$", "[]^x]"])
def test_ordinary_patterns_have_a_hint(pattern: str) -> None:
    assert anywhere(pattern) is not None


@pytest.mark.parametrize(
    "pattern", ["(?!a)", "(?<=a)b", r"(a)\1", "a++b", "^*", "(?i)a", "[[:alpha:]]", "(?:a){e}", "(*FAIL)"]
)
def test_a_pattern_with_special_constructs_has_no_hint(pattern: str) -> None:
    assert anywhere(pattern) is None


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.system",
        "'sys'tem os",
        "sy\\\nstem os",
        "os 'system'",
        r"\x6fos \u0061system",
        "os = 1system",
        "0x1fos.system",
        "a=`os.'sys't\"em`",
        "os`sys'tem",
    ],
)
def test_a_hint_for_names_matches_if_all_words_occur(text: str) -> None:
    assert NameHint(["os.system"], {}).hits(text)


@pytest.mark.parametrize("text", ["", "os", "system", "os.systems", "oslo system", "\u00e9", "os = 1 + \\\n2"])
def test_a_hint_for_names_does_not_match_if_a_word_is_missing(text: str) -> None:
    assert not NameHint(["os.system"], {}).hits(text)


@pytest.mark.parametrize("word", ["asm", "__asm__", "__asm"])
def test_a_keyword_is_found_in_its_exact_spelling(word: str) -> None:
    assert found("cpp", f'int main() {{ {word}("nop"); }}', calls=[word])


@pytest.mark.parametrize(
    "code",
    ["`ls`", "%x(ls)", "x = %x{ls}", "open('|ls')", 'open "|ls"', "open(%q(|ls))", "open(%{|ls})", "open(%Q!|ls!)"],
)
def test_every_spelling_of_a_name_without_letters_is_found(code: str) -> None:
    assert found("ruby", code, calls=["`"]) == [(1, "uses `")]


def test_code_without_the_sign_of_such_a_name_is_not_parsed() -> None:
    signs = {"`": "`"}
    assert not NameHint(["`", "os.system"], signs).hits("os or |other|")
    assert NameHint(["`", "os.system"], signs).hits("`ls`")
    assert NameHint(["`", "?"], signs).hits(""), "a name without words and without a sign can be anywhere"


def test_calls_are_told_by_the_longest_word_of_each_name_unless_one_has_no_words() -> None:
    pieces = NameHint(["os.system", "io.a"], {}).pieces
    assert pieces is not None
    assert {b"system", b"io"} <= pieces
    assert pieces.isdisjoint((b"os", b"a"))
    assert NameHint(["`", "os.system"], {"`": "`"}).pieces == NameHint(["os.system"], {}).pieces
    assert NameHint(["os.system", "?"], {}).pieces is None
