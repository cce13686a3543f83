"""How `pytest -n` shares the tests out to processes that run side by side."""

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from llm_sandbox_mcp.backends import BACKENDS

TOGETHER = ("tests/containers/", "tests/cluster/", "tests/slurm/")
"""Folders whose tests follow each other in one process: they sweep engines, name images or namespaces alike, or start
an engine for all of them."""

BY_BACKEND = ("tests/hostile/", "tests/handlers/test_selftests.py")
"""Those that make one server for all tests on a backend, which follow each other in one process."""

LONGEST = ("tests/hostile/", "tests/containers/", "tests/cluster/", "tests/handlers/test_selftests.py")
"""What is begun first, so that the end is not one process alone with much to do."""

_BACKEND = re.compile(rf"[\[-]({'|'.join(BACKENDS)})[\]-]")


def unit(test: str) -> str:
    """What one process runs from beginning to end: a file, or what the tables above say."""
    file = test.partition("::")[0]
    place = next((place for place in (*TOGETHER, *BY_BACKEND) if file.startswith(place)), file)
    backend = _BACKEND.search(test) if place in BY_BACKEND else None
    return f"{place} on {backend[1]}" if backend else place


def longest_first(items: list[pytest.Item]) -> None:
    """Orders tests by their units, and otherwise leaves them as they are."""
    items.sort(key=lambda item: rank(unit(item.nodeid)))


def rank(name: str) -> int:
    """The place of a unit among the others."""
    return next((number for number, place in enumerate(LONGEST) if name.startswith(place)), len(LONGEST))


class Sides(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process that has nothing left the next unit."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Takes from a process what it had; what ended it is told, and not run again by the next, which it would end too."""
        units = self.assigned_work.pop(node)
        ended = next((test for tests in units.values() for test, done in tests.items() if not done), None)
        for name, tests in units.items():
            if left := {test: done for test, done in tests.items() if not done and test != ended}:
                self.workqueue[name] = left
        for other in self.registered_collections.keys() & self.assigned_work.keys():
            self._reschedule(other)
        return ended

    def _reschedule(self, node: Any) -> None:
        """Gives a process the next unit; one test alone it would not begin before it is told that there is no other."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
