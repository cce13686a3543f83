"""A record of when tests begin and end. It is complete up to the moment when a process is killed or hangs."""

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
    parser.addoption(OPTION, help="append to this file which tests begin and how they end")


def configure(config: pytest.Config) -> None:
    """Makes each process that runs tests write the record; with `pytest -n` these are the workers."""
    path = config.getoption(OPTION)
    only_distributes = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if path and not only_distributes:
        config.pluginmanager.register(_Writer(path))


class _Writer:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._seconds = 0.0
        """Duration of the current test so far, with the setup and teardown of its fixtures."""

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
        # One call for each line, because several processes write to the file.
        os.write(self._file, f"{json.dumps(what)}\n".encode())


def _reason(report: pytest.TestReport) -> str:
    """Why a test failed, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return next(iter(text.strip().splitlines()), "")[:300]


@dataclass
class Journal:
    """The contents of a record."""

    chosen: int = 0
    """How many tests were selected."""
    ended: dict[str, float] = field(default_factory=dict)
    """How long each finished test took, in seconds."""
    failed: dict[str, str] = field(default_factory=dict)
    """The first reason for each failed test."""
    running: dict[str, int] = field(default_factory=dict)
    """The tests that have begun and not ended, with the pid of their process."""

    def __or__(self, other: "Journal") -> "Journal":
        return Journal(
            self.chosen + other.chosen,
            self.ended | other.ended,
            self.failed | other.failed,
            self.running | other.running,
        )


def read(path: Path) -> Journal:
    """Reads a record, which may be cut off anywhere."""
    journal = Journal()
    for line in _lines(path):
        test = line.get("test", "")
        if "chosen" in line:
            journal.chosen = line["chosen"]  # every worker writes the same number
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
