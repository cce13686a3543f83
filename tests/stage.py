"""python -m tests.stage RING: runs the tests of one ring, and those that failed once more, one at a time.

What passes then is unsteady, is named at the end, and fails nothing as long as there is little of it. What fails again,
hangs, or ends its process fails the stage. A stage that takes too long is ended, and says what it was waiting for.
"""

import argparse
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from . import journal, rings, stacks
from .journal import Journal
from .scratch import scratch

SLOWEST = 20
"""How many tests are named for the time that they took."""
UNSTEADY = 8
"""How many tests may fail once."""
LIMITS = {rings.CHECK: 300, rings.SANDBOX: 1200, rings.ENGINES: 1500, rings.ALL: 6 * 3600}
"""Seconds for all tests of a ring, three times what they take."""
SECOND_LIMIT = 600
"""Seconds for the second look."""
PROCESSES = min(4, 2 * (os.cpu_count() or 1))
"""That run tests side by side: more than there are cores, as a test waits for a part of its time."""
_PASSED, _FAILED, _NOTHING_FOUND = 0, 1, 5
_GRACE = 10.0
_PR_SET_PDEATHSIG = 1
_PRINTING = 1.0
"""Seconds for a process to print its tasks, if it still can."""


@dataclass(frozen=True)
class Run:
    """How one run of pytest ended."""

    code: int | None
    """Its exit code; none where it took too long."""
    journal: Journal

    def __add__(self, other: "Run") -> "Run":
        """Both, one after the other."""
        codes = [run.code for run in (self, other)]
        bad = [code for code in codes if code not in (_PASSED, _NOTHING_FOUND)]
        # What is wrong with pytest itself says more than that a test failed.
        code = next((code for code in bad if code != _FAILED), _FAILED) if bad else min(code or 0 for code in codes)
        return Run(code, self.journal | other.journal)

    def failed(self) -> dict[str, str]:
        """The tests that did not pass, and why."""
        reason = "it hung" if self.code is None else "the process that ran it ended"
        return self.journal.failed | {test: f"{reason} (pid {pid})" for test, pid in self.journal.running.items()}


def main() -> int:
    own, more = _split(sys.argv[1:])
    options = _parser().parse_args(own)
    if options.ring == rings.CHECK and not more:
        more = rings.NOTHING  # the same, found sooner
    began = time.monotonic()
    with scratch() as folder:
        # Each in one word: of a word by itself pytest asks whether there is a file of that name, to look for settings there.
        engine = (f"{rings.ENGINE}={options.engine}",) if options.engine else ()
        ring = (f"{rings.OPTION}={options.ring}", *engine, *more)
        side_by_side = (f"-n{options.workers}", f"{rings.BESIDE}=others")
        limit = options.limit or LIMITS[options.ring]
        first = run((*side_by_side, *ring), limit, Path(folder, "first"))
        if options.ring in (rings.ENGINES, rings.ALL) and first.code is not None:
            first += run((f"{rings.BESIDE}=nothing", *ring), limit, Path(folder, "alone"))
        failed = first.failed()
        second: Run | None = None
        if options.second_look and first.code == _FAILED and 0 < len(failed) <= UNSTEADY:
            print(f"\n=== a second look at {len(failed)} that failed, one at a time", flush=True)
            second = run((f"{rings.OPTION}={options.ring}", *failed), SECOND_LIMIT, Path(folder, "second"))
    for test, seconds in slowest(first.journal):
        print(f"{seconds:7.1f} s  {test}")
    good, lines = verdict(first, second)
    print(f"\n=== {options.ring}: {'passed' if good else 'FAILED'} after {time.monotonic() - began:.0f} s")
    print(*lines, sep="\n", flush=True)
    return 0 if good else 1


def run(arguments: Iterable[str], limit: float, record: Path) -> Run:
    """Runs pytest to its end, or ends it when the limit (seconds) is reached."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", f"{journal.OPTION}={record}", *arguments],
        # Compiled modules are kept, whatever this process was told: each process of the tests imports hundreds.
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        preexec_fn=_end_with_stage,
    )
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        _end(process, journal.read(record))
        return Run(None, journal.read(record))
    except BaseException:
        process.kill()
        raise
    return Run(code, journal.read(record))


def slowest(journal: Journal) -> list[tuple[str, float]]:
    """The tests that took longest, the longest first."""
    return sorted(journal.ended.items(), key=itemgetter(1), reverse=True)[:SLOWEST]


def verdict(first: Run, second: Run | None) -> tuple[bool, list[str]]:
    """Whether a stage has passed, and what to say at its end."""
    failed = first.failed()
    again = failed if second is None else second.failed()
    lines = [f"unsteady: {test}\n  failed once: {why}" for test, why in failed.items() if test not in again]
    for test, why in again.items():
        lines.append(f"failed: {test}\n  why: {why}\n  alone: {shlex.join(alone(test))}")
    for which in (first, second):
        if which and which.code is None:
            lines.append("the time of the stage was up; the stacks of what ran then are above")
        elif which and which.code == _NOTHING_FOUND:
            lines.append("there is no such test in this ring")
        elif which and which.code not in (_PASSED, _FAILED):
            lines.append(f"pytest ended with exit code {which.code}; see its output above")
    if second is None and len(failed) > UNSTEADY:
        lines.append(f"{len(failed)} tests failed; a second look is taken at up to {UNSTEADY}")
    chosen, ran = first.journal.chosen, len((first.journal | second.journal if second else first.journal).ended)
    if first.code == _PASSED and (ran < chosen or not ran):
        # Processes that ended before they were given a test are nothing that pytest fails for.
        lines.append(f"of {chosen} tests {ran} were run")
    return (second or first).code == _PASSED and 0 < ran >= chosen and not again, lines


def alone(test: str) -> Sequence[str]:
    """The command that runs one test."""
    return [".venv/bin/python", "-m", "pytest", test]


def _end_with_stage() -> None:
    """Has the process that calls this be ended when the one that made it is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes], record: Journal) -> None:
    """Ends pytest, after having those of its processes that run a test print where they are."""
    for test, pid in record.running.items():
        print(f"\n=== it hangs: {test} (pid {pid})", flush=True)
        with suppress(ProcessLookupError):
            os.kill(pid, stacks.SIGNAL)
            time.sleep(_PRINTING)
            os.kill(pid, signal.SIGABRT)  # for which pytest's faulthandler prints the stacks of all threads
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What comes before `--`, and what after it."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stage", description="Runs one ring of tests. Arguments after -- are pytest's."
    )
    parser.add_argument("ring", choices=rings.RINGS)
    parser.add_argument("--engine", default="", help="of an engine's tests those of this one")
    parser.add_argument("--workers", type=int, default=PROCESSES, help="processes side by side (default: %(default)s)")
    parser.add_argument("--limit", type=float, help="seconds for all of it")
    parser.add_argument("--no-second-look", dest="second_look", action="store_false")
    return parser


if __name__ == "__main__":
    sys.exit(main())
