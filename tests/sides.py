"""How `pytest -n` distributes the tests to processes that run in parallel."""

import re
import zlib
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from llm_sandbox_mcp.backends import BACKENDS

TOGETHER = ("tests/containers/", "tests/cluster/", "tests/slurm/")
"""Folders whose tests run one after the other in one process: they sweep engines, use the same names of images or
namespaces, or share an engine that one of them starts."""

BY_BACKEND = ("tests/hostile/", "tests/handlers/test_selftests.py")
"""Places whose tests share one server per backend; the tests of one backend run one after the other in one process."""

PARTS = {"tests/hostile/ on embedded": 6}
"""Into how many units a group is divided, by file, because it would take longer than everything else."""

LONGEST = (
    *("tests/hostile/", "tests/containers/", "tests/cluster/", "tests/handlers/test_selftests.py"),
    *("tests/mcp/test_http_connections.py", "tests/mcp/test_official.py", "tests/handlers/test_compiled.py"),
)
"""What starts first, so that at the end no single process still has much to do while the others are idle."""

_BACKEND = re.compile(rf"[\[-]({'|'.join(BACKENDS)})[\]-]")


def unit(test: str) -> str:
    """The name of the group of tests that one process runs as a whole: a file, or a group from the constants above."""
    file = test.partition("::")[0]
    place = next((place for place in (*TOGETHER, *BY_BACKEND) if file.startswith(place)), file)
    backend = _BACKEND.search(test) if place in BY_BACKEND else None
    name = f"{place} on {backend[1]}" if backend else place
    return f"{name} {zlib.crc32(file.encode()) % PARTS[name]}" if name in PARTS else name


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by the rank of their unit, and otherwise keeps their order."""
    items.sort(key=lambda item: rank(unit(item.nodeid)))


def rank(name: str) -> int:
    """The position of a unit in the order of units."""
    return next((number for number, place in enumerate(LONGEST) if name.startswith(place)), len(LONGEST))


class Sides(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives the next unit to each process that has nothing left to run."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Returns the test that ended a process, and queues the other tests of that process again.

        The test itself is not queued: it would end the next process, too.
        """
        units = self.assigned_work.pop(node)
        ended = next((test for tests in units.values() for test, done in tests.items() if not done), None)
        for name, tests in units.items():
            if left := {test: done for test, done in tests.items() if not done and test != ended}:
                self.workqueue[name] = left
        for other in self.registered_collections.keys() & self.assigned_work.keys():
            self._reschedule(other)
        return ended

    def _reschedule(self, node: Any) -> None:
        """Gives a process units until it has two tests: it begins its last test only when it knows no more follow."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
