"""The output of the code is separated from the report of the runner, for any split of the data and any bytes."""

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.runs.protocol import FrameParser, decode_report, decode_values, encode_request, new_nonce
from llm_sandbox_mcp.runs.requests import RunRequest

NONCE = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
ADVERSARIAL = st.sampled_from(
    [
        b"\x1e",
        b"\x1e" + NONCE[:7].encode(),
        b"\x1e\x1e",
        f"\x1e{OTHER}.0\n".encode(),
        f"\x1e{NONCE}".encode()[:-1],
        b"\n",
        b"+4",
    ]
)
OUTPUT = st.lists(st.one_of(st.binary(max_size=40), ADVERSARIAL), max_size=8).map(b"".join)
FORGED = [
    "",
    "{",
    "nan",
    "NaN",
    "Infinity",
    "1e999",
    '"\\ud800"',
    '{"\\udfff":1}',
    "[" * 100_000,
    "1" * 5000,
    "[1,NaN]",
    "[" * 101 + "]" * 101,
    '{"a":' * 500 + "1" + "}" * 500,
    "[" + "[]," * 10_000 + "1]",
]
"""Texts that no runner sends as the value of a name."""


def frame(payload: bytes, last: bool) -> bytes:
    return f"\x1e{NONCE}{'.' if last else '+'}{len(payload)}\n".encode() + payload


def portions(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(
    OUTPUT,
    st.lists(st.tuples(st.binary(max_size=60), OUTPUT), min_size=1, max_size=4),
    st.lists(st.integers(0), max_size=30),
)
def test_output_and_payload_are_separated_for_any_split(
    first: bytes, frames: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    marker = f"\x1e{NONCE}".encode()
    printed, stream = first, first
    for number, (payload, after) in enumerate(frames):
        last = number == len(frames) - 1
        stream += frame(payload, last) + after
        printed += after
    if marker in printed:
        return  # only by chance: code does not know the nonce
    parser = FrameParser(NONCE)
    output = b"".join(parser.feed(portion) for portion in portions(stream, cuts))
    assert parser.done
    assert bytes(parser.payload) == b"".join(payload for payload, _ in frames)
    assert output + parser.flush() == printed


def test_frames_that_arrive_byte_by_byte_are_no_output() -> None:
    parser = FrameParser(NONCE)
    stream = b"a" + frame(b"", last=False) + frame(b"xy", last=False) + b"b" + frame(b"z", last=True) + b"c"
    assert b"".join(parser.feed(bytes([byte])) for byte in stream) == b"abc"
    assert (parser.begun, parser.done, bytes(parser.payload)) == (True, True, b"xyz")


@given(st.binary(max_size=300), st.lists(st.integers(0), max_size=30))
def test_bytes_without_the_nonce_are_all_output(data: bytes, cuts: list[int]) -> None:
    parser = FrameParser(NONCE)
    output = b"".join(parser.feed(portion) for portion in portions(data, cuts))
    assert output + parser.flush() == data
    assert not parser.done and not parser.payload


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20), st.just(f"\x1e{NONCE}".encode()), st.sampled_from([b"+", b".", b"99\n", b"0\n"])
        ),
        max_size=30,
    ),
    st.lists(st.integers(0), max_size=20),
)
def test_no_bytes_make_it_fail_or_buffer_much(parts: list[bytes], cuts: list[int]) -> None:
    parser = FrameParser(NONCE)
    data = b"".join(parts)
    output = b"".join(parser.feed(portion) for portion in portions(data, cuts))
    assert len(output) + len(parser.payload) + len(parser.flush()) <= len(data)


@pytest.mark.parametrize("mark", ["", "x", ".", ".\n", ".x\n", ".-1\n", ".12345\n", "+ 1\n", ". 1\n", "!1\n", ".1 \n"])
def test_data_that_is_almost_a_frame_is_output(mark: str) -> None:
    parser = FrameParser(NONCE)
    data = f"\x1e{NONCE}{mark}".encode() + b"rest of the output, long enough"
    assert parser.feed(data) + parser.flush() == data
    assert not parser.done


@pytest.mark.parametrize("size", [0, 1, 4000])
@pytest.mark.parametrize("portion", [1000, 1 << 16])
def test_more_frames_than_any_runner_sends_are_output(size: int, portion: int) -> None:
    parser = FrameParser(NONCE)
    stream = frame(b"x" * size, last=False) * ((4 << 20) // len(frame(b"x" * size, last=False)))
    output = b"".join(parser.feed(stream[at : at + portion]) for at in range(0, len(stream), portion))
    taken = len(stream) - len(output)
    most = (2 << 20) // max(len(frame(b"x" * size, last=False)), 1 << 10)
    assert abs(taken // len(frame(b"x" * size, last=False)) - most) <= 1
    assert output == stream[taken:]
    assert len(parser.payload) <= (1 << 20) + 4000
    # A last frame after that is output too and does not end the report.
    assert parser.feed(frame(b"", last=True)) == frame(b"", last=True)
    assert not parser.done


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.text()))
def test_a_request_is_one_line_with_everything_that_went_in(code: str, variables: dict[str, object]) -> None:
    line = encode_request(NONCE, 7, RunRequest(code, 30, 1000, 1, json.dumps(variables)))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert json.loads(line) == {"nonce": NONCE, "cell": 7, "variables": variables, "code": code}
    assert list(json.loads(line)) == ["nonce", "cell", "variables", "code"]


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)).map(
        lambda x: json.dumps(x).encode()
    )
)
def test_no_payload_makes_reading_a_report_fail(payload: bytes) -> None:
    report = decode_report(payload)
    assert report is None or report.status in ("ok", "error")


MANY = {
    "files": {"files": ["a"] * 201},
    "figures": {"figures": ["a"] * 101},
    "values": {"inspection": {"values": dict.fromkeys(map(str, range(10_001)), "1")}},
    "names left out": {"inspection": {"left_out": ["a"] * 10_001}},
    "anything": {"x": [0] * 10_001},
    "fields": dict.fromkeys(map(str, range(10_001))),
    "nested lists": {"x": json.loads(",".join(["[" * 500 + "]" * 500] * 20).join("[]"))},
}


@given(st.lists(st.text() | st.sampled_from(['"', "\\", '\\"', '\\\\"', "[" * 50_000, '"' * 50_000]), max_size=20))
def test_the_text_in_a_report_does_not_count_as_its_structure(texts: list[str]) -> None:
    report = decode_report(json.dumps({"status": "ok", "exit_code": 0, "files": texts}, ensure_ascii=False).encode())
    assert report is not None
    assert len(report.files) == len(texts)


@pytest.mark.parametrize("many", MANY.values(), ids=MANY)
def test_a_report_with_more_than_any_runner_sends_is_rejected(many: dict[str, object]) -> None:
    assert decode_report(json.dumps({"status": "ok", "exit_code": 0}).encode())
    assert decode_report(json.dumps({"status": "ok", "exit_code": 0, **many}).encode()) is None


def test_a_request_for_the_values_of_names_ends_with_that_key() -> None:
    request = json.loads(encode_request(NONCE, 7, RunRequest("x = 1", 30, 1000, 1, inspect=True)))
    assert list(request) == ["nonce", "cell", "variables", "code", "inspect"]
    assert request["inspect"] is True
    assert (
        list(json.loads(encode_request(NONCE, 7, RunRequest("x = 1", 30, 1000, 1, inspect=True, last=True))))[-1]
        == "last"
    )


@given(st.dictionaries(st.text(), st.text() | st.sampled_from(FORGED)))
def test_decoded_values_can_be_encoded_again(texts: dict[str, str]) -> None:
    for name, value in decode_values(texts).items():
        assert json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        assert texts[name] not in FORGED


def test_an_invalid_value_does_not_affect_the_others() -> None:
    texts = dict(zip(map(str, range(len(FORGED))), FORGED, strict=True)) | {"good": '{"a":[1,null]}'}
    assert decode_values(texts) == {"good": {"a": [1, None]}}


def test_values_have_a_limited_number_of_lists_and_objects_in_all() -> None:
    text = json.dumps([[{}] * 1999] * 3)
    assert decode_values(dict.fromkeys("ab", text) | {"c": "1"}) == {"a": json.loads(text), "c": 1}


def test_brackets_in_a_string_are_not_lists() -> None:
    text = '["\\{' * 20_000
    assert decode_values({"x": json.dumps([text])}) == {"x": [text]}


def test_nonces_do_not_repeat() -> None:
    assert len({new_nonce() for _ in range(1000)}) == 1000
    assert len(new_nonce()) == 32


def test_a_report_at_each_limit_is_read_and_one_beyond_it_is_not() -> None:
    least = {"status": "ok", "exit_code": 0}
    text = json.dumps(least).encode()
    report = decode_report(text)
    assert report is not None
    assert (report.interrupted, report.files_omitted, report.files, report.figures) == (False, 0, (), ())
    for change in ({"files": ["a"] * 200}, {"figures": ["a"] * 100}, {"exit_code": 2**31 - 1}, {"exit_code": -(2**31)}):
        assert decode_report(json.dumps({**least, **change}).encode()), change
    for change in ({"exit_code": 2**31}, {"exit_code": -(2**31) - 1}, {"files_omitted": -1}):
        assert decode_report(json.dumps({**least, **change}).encode()) is None, change
    room = (16 << 10) - len(b"".join(text.split(b'"')[::2]))
    assert decode_report(text + b" " * room) == report
    assert decode_report(text + b" " * (room + 1)) is None


def test_values_at_each_limit_are_read() -> None:
    deep, wide = "[" * 100 + "]" * 100, json.dumps([[]] * (10_000 - 100 - 1))
    found = decode_values({"deep": deep, "wide": wide, "more": "[]", "c": "1"})
    assert found == {"deep": json.loads(deep), "wide": json.loads(wide), "c": 1}
    assert decode_values({"deeper": f"[{deep}]"}) == {}
