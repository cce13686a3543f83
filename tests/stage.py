"""python -m tests.stage RING: runs the tests of one ring, then runs failed tests a second time, one at a time.

A test that passes the second time is unsteady: it is listed at the end, and a few such tests do not fail the stage. A
test that fails again, hangs, or ends its process fails the stage. A stage that takes too long is ended, and the stacks
of its running tests are printed. One that is interrupted ends its tests without a word, and says how far they were.
"""

import argparse
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter, or_
from pathlib import Path

from . import journal, rings, stacks
from .journal import Journal
from .scratch import scratch

SLOWEST = 20
"""How many of the slowest tests are listed."""
UNSTEADY = 8
"""How many tests may fail the first time and pass the second time."""
LIMITS = {rings.CHECK: 300, rings.SANDBOX: 1800, rings.ENGINES: 1500, rings.ALL: 6 * 3600}
"""Seconds for all tests of a ring: at least twice as long as they usually take."""
SECOND_LIMIT = 600
"""Seconds for the second look."""
_CORES = os.cpu_count() or 1
PROCESSES = {ring: min(4, 2 * _CORES) for ring in rings.RINGS} | {rings.CHECK: min(4, _CORES + 1)}
"""How many processes run tests in parallel: more than there are cores, because most tests wait part of the time."""
_PASSED, _FAILED, _NOTHING_FOUND = 0, 1, 5
_GRACE = 10.0
_INTERRUPTED = 130
_PR_SET_PDEATHSIG = 1
_PRINTING = 1.0
"""Seconds for a process to print its tasks, if it still can."""


@dataclass(frozen=True)
class Run:
    """How one run of pytest ended."""

    code: int | None
    """The exit code of pytest; None if it took too long."""
    journal: Journal

    def __add__(self, other: "Run") -> "Run":
        """The result of both runs together."""
        codes = [run.code for run in (self, other)]
        bad = [code for code in codes if code not in (_PASSED, _NOTHING_FOUND)]
        # An error of pytest itself is more important than a failed test.
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
        more = rings.NOTHING  # the same tests, collected faster
    began = time.monotonic()
    with scratch() as folder:
        try:
            return _stage(options, more, Path(folder), began)
        except KeyboardInterrupt:
            found = reduce(or_, map(journal.read, sorted(Path(folder).glob("record-*"))), Journal())
            print(
                f"\n=== {options.ring}: interrupted after {time.monotonic() - began:.0f} s; {so_far(found)}", flush=True
            )
            return _INTERRUPTED


def _stage(options: argparse.Namespace, more: Sequence[str], folder: Path, began: float) -> int:
    # Options with "=": pytest would take a separate value for the name of a file, and look for its settings there.
    engine = (f"{rings.ENGINE}={options.engine}",) if options.engine else ()
    ring = (f"{rings.OPTION}={options.ring}", *engine, *more)
    parallel = (f"-n{options.workers or PROCESSES[options.ring]}", f"{rings.CONCURRENCY}=parallel")
    limit = options.limit or LIMITS[options.ring]
    first = run((*parallel, *ring), limit, folder / "record-1")
    if options.ring in (rings.ENGINES, rings.ALL) and first.code is not None:
        first += run((f"{rings.CONCURRENCY}=alone", *ring), limit, folder / "record-2")
    failed = first.failed()
    second: Run | None = None
    if options.second_look and first.code == _FAILED and 0 < len(failed) <= UNSTEADY:
        print(f"\n=== a second look at {len(failed)} failed tests, one at a time", flush=True)
        second = run((f"{rings.OPTION}={options.ring}", *failed), SECOND_LIMIT, folder / "record-3")
    for test, seconds in slowest(first.journal):
        print(f"{seconds:7.1f} s  {test}")
    good, lines = verdict(first, second)
    print(f"\n=== {options.ring}: {'passed' if good else 'FAILED'} after {time.monotonic() - began:.0f} s")
    print(*lines, sep="\n", flush=True)
    return 0 if good else 1


def run(arguments: Iterable[str], limit: float, record: Path) -> Run:
    """Runs pytest until it ends, or ends it when the limit (seconds) is reached, or on Ctrl-C."""
    colour = ("--color=yes",) if sys.stdout.isatty() else ()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", f"{journal.OPTION}={record}", *colour, *arguments],
        # Compiled modules are kept, whatever this process was started with: each process of the tests imports hundreds.
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_end_with_stage,
        # Its processes do not get the Ctrl-C of the terminal: what they print is shown by this process, until it ends.
        start_new_session=True,
    )
    shown = _Shown(process)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        _end(process, journal.read(record))
        return Run(None, journal.read(record))
    except BaseException:
        shown.on = False
        _interrupt(process)
        raise
    finally:
        shown.join(_PRINTING)
    return Run(code, journal.read(record))


class _Shown(threading.Thread):
    """Copies what a process prints to the own output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)  # a process that a test left behind can keep the pipe open
        assert process.stdout
        self.on = True
        self._pipe = process.stdout
        self.start()

    def run(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                if self.on:
                    sys.stdout.buffer.write(chunk)
                    sys.stdout.flush()


def slowest(journal: Journal) -> list[tuple[str, float]]:
    """The slowest tests and their seconds, the slowest first."""
    return sorted(journal.ended.items(), key=itemgetter(1), reverse=True)[:SLOWEST]


def verdict(first: Run, second: Run | None) -> tuple[bool, list[str]]:
    """Whether a stage has passed, and the lines to print at its end."""
    failed = first.failed()
    again = failed if second is None else second.failed()
    lines = [f"unsteady: {test}\n  failed once: {why}" for test, why in failed.items() if test not in again]
    for test, why in again.items():
        lines.append(f"failed: {test}\n  why: {why}\n  alone: {shlex.join(alone(test))}")
    for which in (first, second):
        if which and which.code is None:
            lines.append("the stage took too long and was ended; see the stacks of the tests that were running above")
        elif which and which.code == _NOTHING_FOUND:
            lines.append("there is no such test in this ring")
        elif which and which.code not in (_PASSED, _FAILED):
            lines.append(f"pytest ended with exit code {which.code}; see its output above")
    if second is None and len(failed) > UNSTEADY:
        lines.append(f"{len(failed)} tests failed; a second look is taken at up to {UNSTEADY}")
    chosen, ran = first.journal.chosen, len((first.journal | second.journal if second else first.journal).ended)
    if first.code == _PASSED and (ran < chosen or not ran):
        # pytest passes even if processes ended before they got a test.
        lines.append(f"of {chosen} tests {ran} were run")
    return (second or first).code == _PASSED and 0 < ran >= chosen and not again, lines


def alone(test: str) -> Sequence[str]:
    """The command that runs one test."""
    return [".venv/bin/python", "-m", "pytest", test]


def so_far(found: Journal) -> str:
    """How far tests were when they were interrupted."""
    passed = len(found.ended.keys() - found.failed.keys())
    names = {"failed": [*found.failed], "running": [*found.running]}
    parts = (f"{what}: {' '.join(tests)}" for what, tests in names.items() if tests)
    return ", ".join((f"{passed} tests passed or were skipped", *parts))


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ends pytest as Ctrl-C does: running tests close what they opened. What does not end soon is killed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(_GRACE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_with_stage() -> None:
    """Makes the kernel end the calling process when its parent, the stage, is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes], record: Journal) -> None:
    """Ends pytest; before that, makes its processes that run a test print their stacks."""
    for test, pid in record.running.items():
        print(f"\n=== it hangs: {test} (pid {pid})", flush=True)
        with suppress(ProcessLookupError):
            os.kill(pid, stacks.SIGNAL)
            time.sleep(_PRINTING)
            os.kill(pid, signal.SIGABRT)  # then pytest's faulthandler prints the stacks of all threads
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
    """The words before `--`, and the words after it."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stage", description="Runs one ring of tests. Arguments after -- are passed to pytest."
    )
    parser.add_argument("ring", choices=rings.RINGS)
    parser.add_argument("--engine", default="", help="run only the tests of this engine")
    parser.add_argument("--workers", type=int, help="parallel processes (default: twice as many as cores, or one more)")
    parser.add_argument("--limit", type=float, help="seconds for all tests of the ring")
    parser.add_argument("--no-second-look", dest="second_look", action="store_false")
    return parser


if __name__ == "__main__":
    sys.exit(main())
