"""Which ring a test belongs to, by what it needs. `make test`, `make test-engines` and `make test-all` run them.

The folder of a test and the backend that it is a case of decide; nothing in a test says so.
"""

from collections.abc import Iterable

import pytest

from .cases import backend_of, left_out

OPTION = "--ring"
SANDBOX = "sandbox"
"""What needs no engine and no daemon: on bubblewrap, or on nothing."""
ENGINES = "engines"
"""What needs Docker, Podman or Kubernetes; the cases that all engines share are shared out among them."""
ALL = "all"
"""Every case of every test on every engine, with what takes long and what needs more than engines."""
RINGS = (SANDBOX, ENGINES, ALL)

ON_ENGINES = ("tests/containers/", "tests/cluster/")
"""Folders whose tests are about engines."""
ONLY_IN_ALL = ("tests/slurm/", "tests/integrations/")
"""Folders whose tests need daemons or packages that nothing else does."""

chosen: str | None = None
"""The ring whose tests this process runs; none where tests are named."""

LIMITS = {"tests/containers/": 600, "tests/cluster/": 600, "tests/slurm/": 600, "tests/integrations/": 900}
"""Seconds for a test, where it waits for engines, nodes or packages; elsewhere pyproject.toml says how long."""


def add_option(parser: pytest.Parser) -> None:
    """Adds the option that chooses a ring; without it whatever is named is run."""
    parser.addoption(OPTION, choices=RINGS, help="run the tests of one ring; see tests/README.md")


def ring(item: pytest.Item) -> str:
    """The smallest ring that a test is in."""
    if item.nodeid.startswith(ONLY_IN_ALL):
        return ALL
    if item.nodeid.startswith(ON_ENGINES) or backend_of(item) not in ("", "embedded"):
        return ENGINES
    return SANDBOX


def limit(items: Iterable[pytest.Item]) -> None:
    """Gives tests the time that those of their folder may take."""
    for item in items:
        for folder, seconds in LIMITS.items():
            if item.nodeid.startswith(folder) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))


def outside(chosen: str | None, items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests that a ring leaves to others."""
    if chosen in (None, ALL):
        return set()
    items = list(items)
    # Those that all engines share are shared out beside bubblewrap's, which is why these are still there.
    others = left_out(items) if chosen == ENGINES else set()
    return others | {item for item in items if ring(item) != chosen}
