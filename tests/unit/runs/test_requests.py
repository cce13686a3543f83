"""What callers send becomes valid text; and the standard input arrives as a variable that no caller can set."""

import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.errors import InvalidArgument
from llm_sandbox_mcp.languages.languages import Language, included_languages
from llm_sandbox_mcp.runs.protocol import STDIN, encode_request
from llm_sandbox_mcp.runs.requests import (
    RunRequest,
    checked_code,
    checked_stdin,
    checked_variables,
    notes_on_text,
    without_fence,
)

LANGUAGES = included_languages()
PYTHON = LANGUAGES["python"]
NONCE = "0" * 32


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_takes_text_and_gets_exactly_that(language: str) -> None:
    for text in ("one\n7", "one\r\n7\n", "\n", ""):
        assert checked_stdin(text, LANGUAGES[language]) == text


def test_text_at_the_limit_is_taken_and_more_is_not() -> None:
    limit = 1 << 20
    assert checked_stdin("é" * (limit // 2), PYTHON) == "é" * (limit // 2)
    with pytest.raises(InvalidArgument, match=f"stdin has {limit + 2} bytes; the limit is {limit}"):
        checked_stdin("é" * (limit // 2 + 1), PYTHON)


def test_a_nul_is_refused_and_a_lone_surrogate_is_replaced() -> None:
    with pytest.raises(InvalidArgument, match="stdin contains a NUL character"):
        checked_stdin("a\0b", PYTHON)
    assert checked_stdin("a\ud800b", PYTHON) == "a\ufffdb"


def test_a_language_whose_runner_gives_no_input_refuses_it() -> None:
    runner = PYTHON.handler.runner
    assert runner is not None
    without = PYTHON.handler.model_copy(update={"runner": runner.model_copy(update={"input": False})})
    with pytest.raises(InvalidArgument, match="stdin cannot be given to python"):
        checked_stdin("7", Language(PYTHON.folder, without))


def test_a_byte_order_mark_is_no_code() -> None:
    assert checked_code("\ufeffprint('\ufeff')", 100) == "print('\ufeff')"


def test_code_and_variables_become_valid_too() -> None:
    assert checked_code("'\ud800'", 5) == "'\ufffd'"
    assert json.loads(checked_variables({"x": {"\udfff": ["\ud800"]}}, PYTHON)) == {"x": {"\ufffd": ["\ufffd"]}}


def test_one_note_names_everything_that_contains_replaced_characters() -> None:
    (note,) = notes_on_text(code="\ufffd", stdin="é", variables='{"x":"\ufffd"}')
    assert note.cause == "U+FFFD in code and variables stands for characters that were not valid Unicode"
    assert note.facts == {"names": ["code", "variables"]}
    assert notes_on_text(code="\\ufffd", stdin="", variables="{}") == []


def test_no_caller_can_set_the_variable_that_carries_the_input() -> None:
    with pytest.raises(InvalidArgument, match=STDIN):
        checked_variables({STDIN: "forged"}, PYTHON)


def compact(variables: dict[str, object]) -> str:
    return json.dumps(variables, separators=(",", ":"))


def test_variables_that_wait_take_as_much_memory_as_their_text() -> None:
    text = checked_variables({"x": [{} for _ in range(100_000)]}, PYTHON)
    assert sys.getsizeof(text) < 400_000


@given(st.text(min_size=1), st.dictionaries(st.text(), st.text()))
def test_the_input_is_the_first_variable(text: str, variables: dict[str, object]) -> None:
    plain = RunRequest("x", 30, 1000, 1, compact(variables))
    request = json.loads(encode_request(NONCE, 1, replace(plain, stdin=text)))
    assert next(iter(request["variables"].items())) == (STDIN, variables.get(STDIN, text))
    assert STDIN in variables or STDIN not in json.loads(encode_request(NONCE, 1, plain))["variables"]


@pytest.mark.parametrize("fence", ["```", "````", "~~~"])
@pytest.mark.parametrize("word", ["", "python", " Python3", "{python}", "py title=x", "text", "ts"])
@pytest.mark.parametrize("code", ["x = 1\n", "\n  x\n\n", "s = '''\n```\ninner\n```\n'''\n", ""])
def test_a_fence_around_the_whole_code_is_left_out(fence: str, word: str, code: str) -> None:
    for around in ("{}", "\ufeff{}\n", "\n\n  {}  \n\n"):
        assert without_fence(around.format(f"{fence}{word}\n{code}{fence}"), PYTHON, LANGUAGES) == code


def test_line_ends_of_code_in_a_fence_stay() -> None:
    assert without_fence("```python\r\nx\r\ny\r\n```\r\n", PYTHON, LANGUAGES) == "x\r\ny\r\n"


@pytest.mark.parametrize(
    "code",
    [
        "",
        "x = 1",
        "```",
        "```python",
        "```python\nx = 1",
        "```x = 1```",
        "```python import os\nos.getcwd()\n```",
        "````\nx\n```",
        "```\nx\n~~~",
        "``\nx\n``",
        "text\n```python\nx\n```",
        "```python\nx\n```\ntext",
        "s = '''\n```\nx\n```\n'''",
        "` `` `\nx\n```",
    ],
)
def test_code_that_is_not_one_fenced_block_stays_as_it_is(code: str) -> None:
    assert without_fence(code, PYTHON, LANGUAGES) == code


@pytest.mark.parametrize(
    ("word", "language", "named"),
    [("bash", "python", "bash"), ("sh", "python", "bash"), ("python", "bash", "python"), ("c++", "r", "cpp")],
)
def test_a_fence_with_the_word_of_another_language_is_refused(word: str, language: str, named: str) -> None:
    with pytest.raises(InvalidArgument, match=f"the fence around code says {named}, and language is {language}; "):
        without_fence(f"```{word}\nx\n```", LANGUAGES[language], LANGUAGES)


@pytest.mark.parametrize("part", ["`", "`\n", "```\n", "```python\n", "\n", " "])
def test_a_fence_is_found_in_linear_time(part: str) -> None:
    """Quadratic time would exceed the time limit of a test."""
    for end in ("", "```"):
        without_fence("```" + part * (1_000_000 // len(part)) + end, PYTHON, LANGUAGES)
