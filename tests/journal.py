"""A record of tests as they begin and end, which is whole up to the moment when a process is killed or hangs."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

OPTION = "--journal"


def add_option(parser: pytest.Parser) -> None:
    """Adds the option that names the file."""
    parser.addoption(OPTION, help="append to this file what begins and how it ends")


def configure(config: pytest.Config) -> None:
    """Has the process that runs tests write them down; where several do so side by side, each of them."""
    path = config.getoption(OPTION)
    shared_out = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if path and not shared_out:
        config.pluginmanager.register(_Writer(path))


class _Writer:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._seconds = 0.0
        """Of the test that runs, with what is made ready for it and taken away."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(chosen=len(session.items))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._seconds = 0.0
        self._write(test=nodeid, began=os.getpid())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.failed:
            self._write(test=report.nodeid, failed=f"{_reason(report)} ({report.when})")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(test=nodeid, ended=round(self._seconds, 2))

    def _write(self, **what: Any) -> None:
        # One call for each line: it comes from several processes.
        os.write(self._file, f"{json.dumps(what)}\n".encode())


def _reason(report: pytest.TestReport) -> str:
    """Why a test failed, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return next(iter(text.strip().splitlines()), "")[:300]


@dataclass
class Journal:
    """What a record says."""

    chosen: int = 0
    """How many tests were to be run."""
    ended: dict[str, float] = field(default_factory=dict)
    """What each took, in seconds."""
    failed: dict[str, str] = field(default_factory=dict)
    """The first reason for each."""
    running: dict[str, int] = field(default_factory=dict)
    """What has begun and not ended, with the process."""

    def __or__(self, other: "Journal") -> "Journal":
        return Journal(
            self.chosen + other.chosen,
            self.ended | other.ended,
            self.failed | other.failed,
            self.running | other.running,
        )


def read(path: Path) -> Journal:
    """Reads a record, which may end anywhere."""
    journal = Journal()
    for line in _lines(path):
        test = line.get("test", "")
        if "chosen" in line:
            journal.chosen = line["chosen"]  # each process that shares them says the same
        elif "began" in line:
            journal.running[test] = line["began"]
        elif "failed" in line:
            journal.failed.setdefault(test, line["failed"])
        else:
            journal.running.pop(test, None)
            journal.ended[test] = line["ended"]
    return journal


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)
