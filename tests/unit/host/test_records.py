"""What a peer or code can cause again and again does not fill the log, and is counted."""

import logging
from collections.abc import Iterator

import pytest

from llm_sandbox_mcp.host.records import LIMITED, LINES, WithoutFloods

NAME = "tests.floods"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Log:
    """A logger whose records pass a handler with the filter."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.logger = logging.getLogger(NAME)
        self.handler = logging.Handler()
        self.handler.addFilter(WithoutFloods(self.clock))
        self.messages: list[str] = []
        self.handler.emit = lambda record: self.messages.append(record.getMessage())  # type: ignore[method-assign]

    def flood(self, number: int, text: str = "bad %d") -> list[str]:
        """The messages that pass, of a number of records from one place."""
        self.messages.clear()
        for count in range(number):
            self.logger.warning(text, count)
        return [*self.messages]


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    log.logger.addHandler(log.handler)
    yield log
    log.logger.removeHandler(log.handler)


def test_a_flood_is_logged_a_few_times_and_then_counted(log: Log) -> None:
    passed = log.flood(LINES + 412)
    assert passed[: LINES - 1] == [f"bad {count}" for count in range(LINES - 1)]
    assert passed[LINES - 1 :] == [f"bad {LINES - 1} (more of this kind are counted, and not logged, for a minute)"]
    log.clock.now += 59
    assert log.flood(1) == []
    log.clock.now += 1
    assert log.flood(2) == ["bad 0 (and 413 more of this kind, which were not logged)", "bad 1"]
    log.clock.now += 60
    assert log.flood(1) == ["bad 0"]


def test_other_places_are_logged_meanwhile(log: Log) -> None:
    log.flood(2 * LINES)
    log.logger.error("another")
    log.logger.error("one more")
    assert log.messages[-2:] == ["another", "one more"]


def test_a_long_message_is_cut_and_a_record_that_its_writer_limits_is_not(log: Log) -> None:
    [message] = log.flood(1, "%d" + "x" * 100_000)
    assert len(message) == 1000
    for _ in range(2 * LINES):
        log.logger.warning("x" * 2000, extra=LIMITED)
    assert [*map(len, log.messages[1:])] == [2000] * (2 * LINES)


def test_two_filters_on_the_way_of_a_record_count_it_once(log: Log) -> None:
    first = WithoutFloods(log.clock)
    log.logger.addFilter(first)
    try:
        assert len(log.flood(2 * LINES)) == LINES
        assert log.messages[-1].count("more of this kind") == 1
    finally:
        log.logger.removeFilter(first)
