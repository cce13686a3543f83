"""Whoever logs never waits for whoever reads the log."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from llm_sandbox_mcp.cli import logs
from llm_sandbox_mcp.host.records import LINES, WithoutFloods

MANY = 5000
"""Records, of a hundred bytes: more than the handler takes, of which a pipe does not take all."""


@contextmanager
def logging_to(inlet: int) -> Iterator[logging.Logger]:
    handler, logger = logs.Background(inlet), logging.Logger("tests.logs")
    logger.addHandler(handler)
    try:
        yield logger
        handler.flush()
    finally:
        handler.close()
        logger.removeHandler(handler)


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, int]]:
    outlet, inlet = os.pipe()
    with open(outlet, "rb") as file:
        yield file, inlet
    os.close(inlet)


def flood(logger: logging.Logger) -> None:
    for number in range(MANY):
        logger.warning("%0100d", number)


@pytest.mark.parametrize("blocking", [True, False])
def test_records_that_nobody_reads_are_counted_and_told_once(blocking: bool, pipe: tuple[BinaryIO, int]) -> None:
    file, inlet = pipe
    os.set_blocking(inlet, blocking)
    with logging_to(inlet) as logger:
        flood(logger)
        written = []
        while "are missing" not in (line := file.readline().decode()):
            written.append(int(line))
        assert written == [*range(len(written))]
        assert int(line.split()[0]) == MANY - len(written)
        assert "read it, or redirect it" in line
        logger.warning("after")
        assert file.readline() == b"after\n"


def test_the_end_of_a_program_waits_a_moment_for_its_last_records(
    pipe: tuple[BinaryIO, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, inlet = pipe
    monkeypatch.setattr(logs, "_END", 0.01)
    with logging_to(inlet) as logger:
        flood(logger)
    # The end came, though nobody read anything.
    (writing,) = [thread for thread in threading.enumerate() if thread.name == "log"]
    assert writing.daemon
    while b"are missing" not in file.readline():
        pass
    writing.join()


def test_a_log_whose_reader_is_gone_harms_nobody(pipe: tuple[BinaryIO, int]) -> None:
    file, inlet = pipe
    with logging_to(inlet) as logger:
        file.close()
        flood(logger)


class Unreadable:
    """An argument that nobody can log."""

    def __str__(self) -> str:
        raise RuntimeError("not this one")


@pytest.mark.parametrize("arguments", [("one",), (1, Unreadable())], ids=["too few", "unreadable"])
def test_a_wrong_call_harms_no_caller_and_is_told_in_the_log(
    arguments: tuple[object, ...], pipe: tuple[BinaryIO, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, inlet = pipe
    monkeypatch.setattr(sys, "stderr", None)  # nobody may write there, as nobody may read it
    with logging_to(inlet) as logger:
        logger.handlers[0].addFilter(WithoutFloods())
        logger.warning("%s %s", *arguments)
        logger.warning("after")
        told = file.readline().decode()
        error = "TypeError" if len(arguments) == 1 else "RuntimeError"
        assert told.startswith(f"a record of tests.logs could not be written: {error}; correct the call at ")
        assert "test_logs.py:" in told
        assert file.readline() == b"after\n"


def test_a_flood_of_wrong_calls_is_told_a_few_times(pipe: tuple[BinaryIO, int]) -> None:
    file, inlet = pipe
    with logging_to(inlet) as logger:
        logger.handlers[0].addFilter(WithoutFloods())
        for _ in range(2 * LINES):
            logger.warning("%s %s", "one")
        logger.warning("after")
        told = [file.readline() for _ in range(LINES + 1)]
        assert told[-1] == b"after\n"
