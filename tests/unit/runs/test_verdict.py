"""The status and the notes of a run, and which part of its output is shown."""

import itertools
import re
import signal
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.base import Fullness, Usage
from llm_sandbox_mcp.base.messages import Note
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.base.results import Status
from llm_sandbox_mcp.runs.protocol import Report
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.runs.run import Ending, Outcome
from llm_sandbox_mcp.runs.verdict import excerpt, exit_code_of, finished, notes_of, status_of

POLICY = Policy(
    memory=1 << 20,
    cpus=1,
    pids=7,
    disk=2 << 20,
    files=9,
    file_size=3 << 20,
    timeout=5,
    grace=1,
    cpu_time=4,
    output=5 << 20,
)
REQUEST = RunRequest("", timeout=2, output=1, grace=1)
USAGES = [Usage(oom, pids, cpu) for oom in (0, 1) for pids in (0, 1) for cpu in (None, 0.5)]
FULL = [Fullness(disk, entries, large) for disk in (False, True) for entries in (0, 9, 10) for large in (False, True)]
CODES = [None, 0, 1, 137, 128 + signal.SIGXFSZ, 128 + signal.SIGXCPU]
REPORTS = [None, Report(status="ok", exit_code=0), Report(status="error", exit_code=1)]
BY_SERVER = ("timeout", "cpu_limit", "output_limit", "cancelled")


def outcomes() -> list[Outcome]:
    return [
        Outcome(ending, report if ending == "answered" else None, True, code, alive, b"", b"", 0, 1.0)
        for ending, report, code, alive in itertools.product(get_args(Ending), REPORTS, CODES, (True, False))
    ]


SEEN = [*itertools.product(outcomes(), USAGES, FULL)]


def test_every_limit_that_was_reached_is_reported_once_in_a_line_with_the_next_step() -> None:
    for outcome, usage, full in SEEN:
        status = status_of(outcome, usage, full, POLICY)
        notes = notes_of(outcome, usage, full, status, POLICY, REQUEST)
        reached = {
            "memory limit of 1MiB": usage.oom_kills > 0,
            "disk limit of 2MiB": full.disk,
            "limit of 9 files and folders": full.entries >= 9,
            "limit of 7 processes and threads": usage.pids_refused > 0,
        }
        for name, hit in reached.items():
            assert sum(name in note for note in notes) == hit, (outcome, usage, full, notes)
        assert all(re.fullmatch(r"[^\n;]+; [^\n;]+|variables and files are lost", note) for note in notes), notes
        assert len({*notes}) == len(notes), notes


def test_of_several_limits_the_one_that_decided_is_named_first() -> None:
    for outcome, usage, full in SEEN:
        status = status_of(outcome, usage, full, POLICY)
        codes = [note.code for note in notes_of(outcome, usage, full, status, POLICY, REQUEST)]
        assert status not in codes or codes[0] == status, (outcome, usage, full, codes)


def test_if_two_limits_were_reached_one_decides_whatever_the_code_reports() -> None:
    for outcome, usage, full in SEEN:
        status = status_of(outcome, usage, full, POLICY)
        assert status in get_args(Status)
        succeeded = outcome.ending == "answered" and outcome.report == REPORTS[1]
        if usage.oom_kills and not succeeded:
            assert status == "out_of_memory"
        elif outcome.ending in BY_SERVER:
            assert status == outcome.ending
        elif full.entries > POLICY.files:
            assert status == "inode_limit"
        elif succeeded:
            assert status == "ok"
        else:
            assert status not in ("timeout", "output_limit", "cancelled", "out_of_memory")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("timeout", "stopped after 2s; "),
        ("cpu_limit", "stopped after 4s of processor time"),
        ("output_limit", "stopped after printing 5MiB; "),
        ("file_limit", "the limit of 2MiB for one file was reached; "),
    ],
)
def test_the_note_of_a_stopped_run_names_the_limit(status: Status, expected: str) -> None:
    outcome = Outcome("exited", None, True, 1, False, b"", b"", 0, 1.0)
    assert notes_of(outcome, Usage(), Fullness(), status, POLICY, REQUEST)[0].startswith(expected)


@pytest.mark.parametrize(
    ("code", "usage", "full", "expected"),
    [
        (1, Usage(), Fullness(), "error"),
        (1, Usage(), Fullness(entries=8), "error"),
        (1, Usage(), Fullness(entries=9), "inode_limit"),
        (1, Usage(pids_refused=1), Fullness(large=True, entries=9, disk=True), "disk_limit"),
        (1, Usage(pids_refused=1), Fullness(large=True, entries=9), "inode_limit"),
        (1, Usage(pids_refused=1), Fullness(large=True), "file_limit"),
        (128 + signal.SIGXFSZ, Usage(), Fullness(), "file_limit"),
        (128 + signal.SIGXCPU, Usage(), Fullness(), "cpu_limit"),
        (128 + signal.SIGXCPU, Usage(cpu=1.0), Fullness(), "error"),
        (1, Usage(pids_refused=1), Fullness(), "process_limit"),
        (0, Usage(pids_refused=1), Fullness(large=True, entries=9, disk=True), "ok"),
    ],
)
def test_a_failure_has_the_status_of_the_limit_that_was_reached(
    code: int, usage: Usage, full: Fullness, expected: Status
) -> None:
    outcome = Outcome("exited", None, True, code, False, b"", b"", 0, 1.0)
    assert status_of(outcome, usage, full, POLICY) == expected


@pytest.mark.parametrize("ending", ["lost", "answered"])
def test_nothing_is_ok_of_which_nobody_knows_how_it_went(ending: Ending) -> None:
    outcome = Outcome(ending, None, True, 0, False, b"", b"", 0, 1.0)
    assert status_of(outcome, Usage(), Fullness(), POLICY) == "error"


@pytest.mark.parametrize(
    ("ending", "report", "code", "alive", "floods", "expected"),
    [
        ("timeout", None, None, True, False, 130),
        ("output_limit", None, None, False, True, 130),
        ("timeout", None, None, False, False, 137),
        ("answered", REPORTS[2], None, True, False, 1),
        ("answered", Report(status="error", exit_code=7), 3, True, False, 7),
        ("answered", None, None, True, False, 1),
        ("exited", None, 3, False, False, 3),
        ("lost", None, None, False, False, 137),
    ],
)
def test_the_exit_code_is_that_of_the_code_or_of_what_stopped_it(
    ending: Ending, report: Report | None, code: int | None, alive: bool, floods: bool, expected: int
) -> None:
    assert exit_code_of(Outcome(ending, report, True, code, alive, b"", b"", 0, 1.0, floods)) == expected


GAP = re.compile(r"\n\[\.\.\. [^\n]* left out \.\.\.\]\n")


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode), st.integers(1, 400))
def test_output_that_fits_is_shown_whole_and_longer_output_by_head_and_tail(data: bytes, limit: int) -> None:
    output = excerpt(data, limit)
    if len(data) <= limit:
        assert output.omitted == 0
        assert output.text == data.decode(errors="replace").replace("\0", "\ufffd")
    else:
        assert 0 < output.omitted <= len(data)
        assert len(data) - output.omitted <= limit


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200), st.integers(1, 300))
def test_cuts_fall_between_characters_and_omitted_is_exact(text: str, limit: int) -> None:
    data = text.encode()
    output = excerpt(data, limit)
    assert not output.replaced
    if output.omitted:
        head, tail = next((output.text[: m.start()], output.text[m.end() :]) for m in GAP.finditer(output.text))
        assert text.startswith(head) and text.endswith(tail)
        assert len(head.encode()) + len(tail.encode()) + output.omitted == len(data)


def test_bytes_that_are_not_text_are_replaced_and_marked_as_replaced() -> None:
    assert excerpt(b"a\xffb\0c", 100).text == "a\ufffdb\ufffdc"
    assert excerpt(b"a\xffb", 100).replaced == "bytes that are not UTF-8"
    assert excerpt(b"a\0b", 100).replaced == "NUL bytes"
    assert excerpt(b"a\0\xffb", 100).replaced == "NUL bytes and bytes that are not UTF-8"
    assert not excerpt("é\ufffd".encode(), 100).replaced
    assert excerpt(b"a\xffb\0c", 100).raw == b"a\xffb\0c"
    cut = excerpt(b"\xff" * 100, 10)
    assert cut.raw is not None and cut.raw.decode(errors="replace") == cut.text


def ended(ending: Ending, code: int, *, program: bool, signalled: bool | None = True) -> Outcome:
    report = Report(status="error", exit_code=code) if ending == "answered" else None
    return Outcome(
        ending, report, True, code, ending == "answered", b"", b"", 0, 1.0, program=program, signalled=signalled
    )


def test_a_program_that_a_signal_ended_has_not_finished_and_one_that_it_started_does_not_count() -> None:
    for number in (signal.SIGSEGV, signal.SIGALRM, signal.SIGPIPE, signal.SIGRTMAX):
        assert not finished("error", ended("exited", 128 + number, program=False))
        assert not finished("error", ended("answered", 128 + number, program=True))
        assert finished("error", ended("answered", 128 + number, program=False))
        assert finished("error", ended("answered", 128 + number, program=True, signalled=False))
    for code in (0, 1, 128, 128 + signal.SIGWINCH, 255):
        assert finished("error", ended("exited", code, program=True))
    assert not finished("timeout", ended("answered", 0, program=False))


SEGV = "the program ended with signal SIGSEGV; the usual cause is an invalid memory access, or recursion without end"


def test_a_note_names_the_signal_that_ended_a_program_unless_a_limit_explains_it() -> None:
    def notes(code: int, usage: Usage = USAGES[0], full: Fullness = FULL[0], *, program: bool = True) -> list[Note]:
        outcome = ended("answered", code, program=program)
        return notes_of(outcome, usage, full, status_of(outcome, usage, full, POLICY), POLICY, REQUEST)

    assert notes(128 + signal.SIGSEGV) == [SEGV]
    assert notes(128 + signal.SIGTERM) == ["the program ended with signal SIGTERM"]
    for number in (signal.SIGFPE, signal.SIGABRT):
        (note,) = notes(128 + number)
        assert note.startswith(f"the program ended with signal {number.name}; the usual cause is ")
    for code in (1, 128, 128 + signal.SIGCHLD, 128 + 40, 255):
        assert notes(code) == []
    assert notes(128 + signal.SIGSEGV, program=False) == []
    chosen, unclear = (ended("answered", 128 + signal.SIGSEGV, program=True, signalled=one) for one in (False, None))
    assert notes_of(chosen, USAGES[0], FULL[0], "error", POLICY, REQUEST) == []
    assert notes_of(unclear, USAGES[0], FULL[0], "error", POLICY, REQUEST) == [
        SEGV.replace("with signal", "as after signal")
    ]
    limits = [
        notes(128 + signal.SIGKILL, Usage(oom_kills=1)),
        notes(128 + signal.SIGABRT, Usage(pids_refused=1)),
        notes(128 + signal.SIGBUS, full=Fullness(disk=True)),
        notes(128 + signal.SIGXFSZ),
    ]
    assert [note.code for (note,) in limits] == ["out_of_memory", "process_limit", "disk_limit", "file_limit"]
