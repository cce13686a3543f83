"""Whatever code prints, returns, raises or names its files, callers get JSON that a strict parser accepts."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import ReadResourceResult
from pydantic import BaseModel

from llm_sandbox_mcp.base.messages import Note
from llm_sandbox_mcp.base.results import Execution, Status
from llm_sandbox_mcp.base.text import one_line, valid
from llm_sandbox_mcp.compat.rest.answers import answered, ran
from llm_sandbox_mcp.compat.rest.inspection import inspection_of
from llm_sandbox_mcp.files.artifacts import describe
from llm_sandbox_mcp.runs.protocol import decode_report
from llm_sandbox_mcp.runs.verdict import excerpt
from llm_sandbox_mcp.server.answering import describe_run, executed
from llm_sandbox_mcp.server.content import contents, failure, success

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["\ud800", "\udfff\ud800", "\0", "\u2028\u2029", "\x1b]52;c;eA==\x07", "\x9b2J", "\u202e", "\ufeff", "\U000e0041"]
)
BYTES = st.binary(max_size=200) | st.sampled_from(
    [b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\0", b"\xe2\x80\xa8", b"\x1e" * 40, b"\x9b2J"]
)
DEEP = ["[" * depth + "]" * depth for depth in (99, 101, 255, 900)]
NUMBERS = ["NaN", "-Infinity", "1e999", "-0.0", "1" * 4300, "1" * 4301, "1e-999", "123456789012345678901234567890.5"]
JSON_TEXT = st.sampled_from(
    [*DEEP, *NUMBERS, '"\\ud800"', '{"\\udfff": 1}', '{"": {"": ""}}', '{"a": 1, "a": 2}', "x"]
) | (
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
).map(json.dumps)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
"""Names of files: a file is kept only if its name is valid text."""
STATUSES: Sequence[Status] = ("ok", "error", "timeout")


def strict(text: str | bytes) -> Any:
    """The result of a strict parser."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text if isinstance(text, str) else text.decode("utf-8", "strict"), parse_constant=refuse)


def over_mcp(answer: BaseModel) -> Any:
    """An answer as it is sent over MCP."""
    return strict(answer.model_dump_json(by_alias=True))


@given(
    st.sampled_from(STATUSES),
    BYTES,
    BYTES,
    st.none() | ANY_TEXT,
    st.dictionaries(ANY_TEXT, JSON_TEXT, max_size=5),
    st.none() | st.tuples(ANY_TEXT, ANY_TEXT, ANY_TEXT),
    st.lists(st.tuples(NAMES, BYTES), max_size=3),
    st.lists(ANY_TEXT, max_size=3),
    st.integers(1, 300),
)
def test_a_run_is_reported_in_valid_json_over_every_interface(
    status: Status,
    stdout: bytes,
    stderr: bytes,
    result: str | None,
    values: dict[str, str],
    error: tuple[str, str, str] | None,
    files: list[tuple[str, bytes]],
    notes: list[str],
    most: int,
) -> None:
    raised = None if error is None else dict(zip(("type", "message", "traceback"), error, strict=True))
    inspection = {"values": values, "left_out": [*values], "error": raised}
    payload = json.dumps({"status": "ok", "exit_code": 0, "result": result, "inspection": inspection}).encode()
    report = decode_report(payload)
    execution = Execution(
        status,
        0,
        excerpt(stdout, most),
        excerpt(stderr, most),
        report.result if report is not None else None,
        1.0,
        "0" * 32,
        "kept",
        tuple(describe(name, content) for name, content in files),
        tuple(Note("said", one_line(note)) for note in notes),
    )
    answer = executed(execution)
    sent = over_mcp(success(describe_run(answer), answer))
    assert sent["structuredContent"]["status"] == status
    assert sent["structuredContent"]["stdout"] == execution.stdout.text
    found = inspection_of(report)
    over_http = strict(bytes(answered(ran("name", execution, found, ())).body))
    assert over_http["status"] == status
    if status == "ok" and found is not None and report is not None and report.inspection is not None:
        assert {*over_http["result"]} | {*found.left_out} == {*report.inspection.values}
        assert over_http["result"] == found.values


@given(ANY_TEXT)
def test_a_refusal_is_one_valid_line(text: str) -> None:
    (content,) = over_mcp(failure(text))["content"]
    assert len(content["text"].splitlines()) <= 1


@pytest.mark.anyio
@given(NAMES, BYTES)
async def test_an_artifact_is_read_as_valid_json(name: str, data: bytes) -> None:
    read = await contents("0" * 32, describe(name, data), data)
    (content,) = over_mcp(ReadResourceResult(contents=[read]))["contents"]
    assert ("text" in content) != ("blob" in content)


@given(st.text(st.sampled_from(["\ud800", "\udfff", "a", "\U0001f600", "\0"]), min_size=1))
def test_a_report_contains_nothing_that_json_cannot_express(text: str) -> None:
    error = {"type": text, "message": text, "traceback": text}
    inspection = {"values": {text: "1"}, "left_out": [text], "error": error}
    found = {
        "status": "ok",
        "exit_code": 0,
        "result": text,
        "files": [text],
        "figures": [text],
        "inspection": inspection,
    }
    report = decode_report(json.dumps(found).encode())
    assert report is not None and strict(report.model_dump_json())
    # JSON turns a surrogate pair into one character.
    assert report.result == valid(json.loads(json.dumps(text)))
