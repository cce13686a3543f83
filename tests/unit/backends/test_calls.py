"""The table of system calls, and that its two forms decide alike."""

import inspect
import re
from collections.abc import Iterator
from errno import EPERM
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends import calls
from llm_sandbox_mcp.backends.calls import ALWAYS, CALLS, MACHINES, Verdict

from .verdicts import ALLOW, RULES, allows, judge


@pytest.mark.parametrize("machine", MACHINES)
def test_no_call_has_two_verdicts(machine: str) -> None:
    numbers = [call.numbers[machine] for call in CALLS.values() if machine in call.numbers]
    assert len(numbers) == len(set(numbers))
    rows = re.findall(r"\b(\w+) (?:\d+|-) (?:\d+|-)", inspect.getsource(calls))
    assert sorted(rows) == sorted(CALLS)


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h")],
)
def test_the_numbers_match_the_kernel_headers(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"{header} is not installed")
    text = Path(header).read_text()
    known = {name: int(number) for name, number in reversed(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text))}
    others = re.findall(r"#define __NR_(\w+)\s+__NR3264_(\w+)", text)
    known |= {name: known[other] for name, other in others if other in known}
    ours = {name: call.numbers[machine] for name, call in CALLS.items() if machine in call.numbers and name in known}
    assert len(ours) > 250
    assert ours == {name: known[name] for name in ours}


def test_both_forms_have_the_same_calls() -> None:
    """Apart from calls that always fail: profiles of containers name only those whose error is not EPERM."""
    named = {name for rule in RULES for name in rule["names"]}
    assert named == {name for name, call in CALLS.items() if call.verdict != EPERM}


def compared(verdict: Verdict) -> Iterator[int]:
    """The values to which a rule compares arguments, and their neighbours."""
    for case in verdict if isinstance(verdict, tuple) else ():
        for condition in case:
            for value in (*condition.values, condition.mask & -condition.mask):
                yield from (value, value + 1, value ^ 1 << 31)


VALUES = sorted({0, 1, 2, *(value & 2**32 - 1 for call in CALLS.values() for value in compared(call.verdict))})
halves = st.one_of(st.sampled_from(VALUES), st.integers(0, 2**32 - 1))
words = st.one_of(halves, st.builds(lambda low, high: high << 32 | low, halves, halves))
ruled = [name for name, call in CALLS.items() if isinstance(call.verdict, tuple) and call.verdict != ALWAYS]


@given(st.sampled_from(MACHINES), st.one_of(st.sampled_from(ruled), st.sampled_from([*CALLS])), st.data())
def test_a_container_allows_exactly_what_bubblewrap_allows(machine: str, name: str, data: st.DataObject) -> None:
    arguments = data.draw(st.lists(words, min_size=6, max_size=6))
    if machine in CALLS[name].numbers:
        assert allows(name, *arguments) == (judge(machine, name, *arguments) == ALLOW), name
