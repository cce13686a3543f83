"""Which ring a test belongs to, by what it needs. `make check`, `test`, `test-engines` and `test-all` run the rings.

The folder of a test, its backend, its language and its markers decide.
"""

from collections.abc import Iterable

import pytest

from llm_sandbox_mcp.backends import BACKENDS

from .effort import EFFORT
from .turns import arguments, backend_of, by_case, by_language, has_turn, language_of, left_out

OPTION = "--ring"
ENGINE = "--engine"
CONCURRENCY = "--concurrency"
CHECK = "check"
"""Tests that need no sandbox at all."""
SANDBOX = "sandbox"
"""Tests that need no engine and no daemon: the tests of `CHECK`, and those that run on bubblewrap."""
ENGINES = "engines"
"""Tests on real Docker, Podman and Kubernetes, which take turns: what every engine must do, tests of single engines,
and a few attacks and languages."""
ALL = "all"
"""Every case of every test on every engine, including slow tests and tests that need more than engines."""
RINGS = (CHECK, SANDBOX, ENGINES, ALL)

NOTHING = ("tests/unit/", "tests/memory/", "tests/other_systems/", "tests/test_layers.py")
"""Tests that need no sandbox."""
EACH = "tests/conformance/"
"""What every engine must do. The ring of engines runs only the cases in Python, and each case on one engine."""
ON_ENGINES = {"tests/containers/": ("docker", "podman"), "tests/cluster/": ("kubernetes",)}
"""Folders with tests of some engines; the ring of engines runs each case on one of them."""
MORE = ("tests/integrations/", "tests/slurm/")
"""Tests that need packages or daemons that no other test needs."""

PROPERTY = 120
"""Seconds for a property, as often as `make test` tries it."""

running: str | None = None
"""The ring whose tests this process runs; None if no ring was chosen."""

LIMITS = {
    "tests/containers/": 600,
    "tests/cluster/": 600,
    "tests/slurm/": 600,
    "tests/integrations/": 900,
    "tests/clients/": 600,
}
"""Seconds for a test that waits for engines, nodes or packages; pyproject.toml sets the limit of all other tests."""


def add_options(parser: pytest.Parser) -> None:
    """Adds the options that choose a ring and an engine; without them, the named tests run."""
    parser.addoption(OPTION, choices=RINGS, help="run the tests of one ring; see tests/README.md")
    parser.addoption(
        ENGINE, choices=[name for name in BACKENDS if name != "embedded"], help="run only the tests of this engine"
    )
    parser.addoption(
        CONCURRENCY,
        choices=("parallel", "alone"),
        help="run only tests that can run in parallel with others, or only tests that must run alone",
    )


def ring(item: pytest.Item) -> str:
    """The smallest ring that contains a test."""
    name, backend = item.nodeid, backend_of(item)
    if name.startswith(MORE) or not all(_has(item, mark, "but") for mark in item.iter_markers("only_in_all")):
        return ALL
    if item.get_closest_marker("one_protocol") and not has_turn(item):
        return ALL
    if name.startswith(NOTHING):
        return CHECK
    if name.startswith(tuple(ON_ENGINES)):
        return ENGINES
    if backend in ("", "embedded"):
        return SANDBOX
    if (name.startswith(EACH) and language_of(item) == "python") or item.get_closest_marker("in_turns"):
        return ENGINES
    return ALL


def limit(items: Iterable[pytest.Item]) -> None:
    """Sets the time limit of each test to the limit of its folder."""
    for item in items:
        for folder, seconds in LIMITS.items():
            if item.nodeid.startswith(folder) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.timeout(PROPERTY * EFFORT))


def chosen(
    items: Iterable[pytest.Item], *, which: str | None = None, engine: str | None = None, concurrency: str | None = None
) -> list[pytest.Item]:
    """The tests that the options choose."""
    wanted = [item for item in items if engine in (None, *_engines(item))]
    if concurrency:
        wanted = [item for item in wanted if _alone(item) == (concurrency == "alone")]
    if which in (None, ALL):
        return wanted
    rings = (CHECK, SANDBOX) if which == SANDBOX else (which,)
    wanted = [item for item in wanted if ring(item) in rings]
    others = _others(wanted) if which == ENGINES else set()
    return [item for item in wanted if item not in others]


def _others(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The cases that are left out on this engine because another engine runs them."""
    of_languages = [item for item in items if item.get_closest_marker("in_turns")]
    each = [item for item in items if item.nodeid.startswith((EACH, *ON_ENGINES))]
    return left_out(of_languages, by_language) | left_out(each, by_case)


def _alone(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("alone")
    return mark is not None and (not mark.kwargs or _has(item, mark, "only"))


def _has(item: pytest.Item, mark: pytest.Mark, which: str) -> bool:
    """Whether a test case has the arguments that its marker names; for each a tuple of values is possible."""
    has = {"language": language_of(item), **arguments(item)}
    wanted = mark.kwargs.get(which, {})
    return bool(wanted) and all(
        has.get(name) in (value if isinstance(value, tuple) else (value,)) for name, value in wanted.items()
    )


def _engines(item: pytest.Item) -> tuple[str, ...]:
    """The engines that a test belongs to."""
    backend = backend_of(item)
    return (
        (backend,) if backend else next((of for place, of in ON_ENGINES.items() if item.nodeid.startswith(place)), ())
    )
