"""Output as a terminal leaves it. The first test has a terminal that writes each character into its cell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.terminal import as_left, bytes_as_left


def left_by_a_terminal(line: str) -> str:
    cells: list[str] = []
    at = 0
    for character in line:
        if character == "\r":
            at = 0
        else:
            cells[at : at + 1] = [character]
            at += 1
    return "".join(cells)


@given(st.lists(st.text("ab\r中"), max_size=4))
def test_each_line_has_its_last_state(lines: list[str]) -> None:
    assert as_left("\n".join(lines)) == "\n".join(map(left_by_a_terminal, lines))


@pytest.mark.parametrize(
    ("printed", "left"),
    [
        ("".join(f"\rprogress {number}" for number in range(1, 301)) + "\n", "progress 300\n"),
        ("one\r\ntwo\r\r\n", "one\ntwo\n"),
        ("longer text\rshort", "shortr text"),
        ("50%\r", "50%"),
        ("longer text\r\x1b[Kshort", "short"),
        ("longer text\rshort\x1b[K\n", "short\n"),
        ("\x1b[2K\rone, longer\x1b[2K\rtwo", "two"),
        ("\x1b[32m10%\x1b[0m\r\x1b[32m9%\x1b[0m", "9%%"),
        ("\x1b[32mgreen\x1b[0m\n\x1b[Kas it is\n", "\x1b[32mgreen\x1b[0m\n\x1b[Kas it is\n"),
        ("a\b\x07\x1b]0;title\x07\n", "a\b\x07\x1b]0;title\x07\n"),
    ],
)
def test_what_is_written_over_is_gone(printed: str, left: str) -> None:
    assert as_left(printed) == left


@pytest.mark.parametrize(
    "part",
    ["\r", "a\r", "a\rb\n", "\r\x1b[K", "\x1b[1\r", "\x1b]\r", "\x1b[1;1H\r", "\r\n", "中\r", "\x1b[2K\r", "\x1b[\r"],
)
def test_a_megabyte_is_read_in_linear_time(part: str) -> None:
    """The time limit of the tests would end a quadratic one."""
    longest = "x" * 1000
    state, *rest = as_left(longest + part * (1_000_000 // len(part)) + "\r" + "y").split("\n")
    assert len(state) <= 1010
    assert len(rest) == part.count("\n") * (1_000_000 // len(part))


def test_bytes_that_are_not_utf8_stay() -> None:
    assert bytes_as_left(b"\xff\xfe\r\x80") == b"\x80\xfe"
    assert bytes_as_left("é中\rx".encode()) == "x中".encode()
