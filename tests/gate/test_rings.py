"""The ring that a test is in."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests import rings
from tests.rings import ALL, CHECK, ENGINES, SANDBOX, chosen, ring

from ..cli.command import ROOT


class Item:
    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator, **params: str) -> None:
        self.nodeid = nodeid
        self.marks = [mark.mark for mark in marks]
        self.callspec = SimpleNamespace(params=params)

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for mark in self.marks if mark.name == name)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(self.iter_markers(name), None)


def item(nodeid: str, *marks: pytest.MarkDecorator, **params: str) -> Any:
    return Item(nodeid, *marks, **params)


ALONE = pytest.mark.alone
IN_TURNS = pytest.mark.in_turns
ONE_PROTOCOL = pytest.mark.one_protocol
ONLY_IN_ALL = pytest.mark.only_in_all
ONLY_IN_PYTHON = pytest.mark.only_in_all(but={"language": "python"})
QUICKEST = pytest.mark.only_in_all(but={"outside": "one", "way": ("stdio", "pipe")})
SHARED = pytest.mark.alone(only={"backend_name": "docker"})

UNIT = item("tests/unit/test_a.py::test_b")
TOOL = item("tests/mcp/test_a.py::test_b")
EMBEDDED = item("tests/hostile/test_a.py::test_b[embedded]", SHARED, backend_name="embedded")
DOCKER = item("tests/hostile/test_a.py::test_b[docker]", SHARED, backend_name="docker")
EACH = [item(f"tests/conformance/test_a.py::test_b[{name}]", backend_name=name) for name in ("docker", "podman")]
RUBY = item("tests/conformance/test_a.py::test_b[docker-ruby]", backend_name="docker", language="ruby")
TURNS = [
    item(f"tests/hostile/test_a.py::test_c[{name}]", IN_TURNS, backend_name=name)
    for name in ("embedded", "docker", "podman")
]
OWN = item("tests/containers/test_a.py::test_b")
PODMANS = item("tests/containers/test_a.py::test_b[podman]", backend_name="podman")
CLUSTERS = item("tests/cluster/test_a.py::test_b")
CHANGES = item("tests/cluster/test_a.py::test_c", ALONE)
BATCH = item("tests/slurm/test_a.py::test_b")
LOAD = item("tests/cluster/test_a.py::test_d", ALONE, ONLY_IN_ALL)
NO_LANGUAGE = item("tests/handlers/test_a.py::test_b", ONLY_IN_PYTHON)
LIBRARY = item("tests/handlers/test_a.py::test_b[embedded-python]", ONLY_IN_PYTHON, language="python")
GEM = item("tests/handlers/test_a.py::test_b[embedded-ruby]", ONLY_IN_PYTHON, language="ruby")
SLOW = item("tests/handlers/test_a.py::test_c[embedded-python]", ONLY_IN_ALL, ONLY_IN_PYTHON, language="python")
OUTSIDE = {
    way: item(f"tests/clients/test_a.py::test_b[one-{way}]", QUICKEST, outside="one", way=way)
    for way in ("stdio", "http")
}
OTHER = item("tests/clients/test_a.py::test_b[other-stdio]", QUICKEST, outside="other", way="stdio")
NO_CLIENT = item("tests/clients/test_a.py::test_c", QUICKEST)
EVERYTHING = [
    *(UNIT, TOOL, EMBEDDED, DOCKER, *EACH, RUBY, *TURNS, OWN, PODMANS, CLUSTERS, CHANGES, BATCH, LOAD, NO_LANGUAGE),
    *(LIBRARY, GEM, SLOW, *OUTSIDE.values(), OTHER, NO_CLIENT),
]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (UNIT, CHECK),
        (TOOL, SANDBOX),
        (EMBEDDED, SANDBOX),
        (DOCKER, ALL),
        (EACH[0], ENGINES),
        (RUBY, ALL),
        (TURNS[0], SANDBOX),
        (TURNS[1], ENGINES),
        (OWN, ENGINES),
        (CLUSTERS, ENGINES),
        (BATCH, ALL),
        (LOAD, ALL),
        (NO_LANGUAGE, SANDBOX),
        (LIBRARY, SANDBOX),
        (GEM, ALL),
        (SLOW, ALL),
        (OUTSIDE["stdio"], SANDBOX),
        (OUTSIDE["http"], ALL),
        (OTHER, ALL),
        (NO_CLIENT, ALL),
    ],
)
def test_folder_backend_language_and_markers_decide(test: Any, expected: str) -> None:
    assert ring(test) == expected


@pytest.mark.parametrize(
    ("which", "run"),
    [
        (CHECK, [UNIT]),
        (SANDBOX, [UNIT, TOOL, EMBEDDED, TURNS[0], NO_LANGUAGE, LIBRARY, OUTSIDE["stdio"]]),
        (ENGINES, [EACH[0], TURNS[1], OWN, PODMANS, CLUSTERS, CHANGES]),
        (ALL, EVERYTHING),
        (None, EVERYTHING),
    ],
)
def test_a_ring_runs_its_tests(which: str | None, run: list[Any]) -> None:
    assert chosen(EVERYTHING, which=which) == run


@pytest.mark.parametrize(
    ("engine", "run"),
    [
        ("podman", [EACH[1], TURNS[2], OWN, PODMANS]),
        ("docker", [EACH[0], TURNS[1], OWN]),
        ("kubernetes", [CLUSTERS, CHANGES]),
    ],
)
def test_naming_an_engine_runs_all_tests_about_it(engine: str, run: list[Any]) -> None:
    assert chosen(EVERYTHING, which=ENGINES, engine=engine) == run


def test_the_protocols_take_turns() -> None:
    run = {"legacy": 0, "2026-07-28": 0}
    for number in range(100):
        pair = [item(f"tests/mcp/test_a.py::test_{number}[{era}]", ONE_PROTOCOL, era=era) for era in run]
        [one] = chosen(pair, which=SANDBOX)
        run["legacy" if "legacy" in one.nodeid else "2026-07-28"] += 1
        assert chosen(pair, which=ALL) == pair
    assert min(run.values()) > 25
    both = [item(f"tests/mcp/test_a.py::test_b[{era}]", era=era) for era in run]
    assert chosen(both, which=SANDBOX) == both


def test_tests_that_take_the_whole_machine_run_alone() -> None:
    alone = [DOCKER, CHANGES, LOAD]
    assert chosen(EVERYTHING, concurrency="alone") == alone
    assert chosen(EVERYTHING, concurrency="parallel") == [test for test in EVERYTHING if test not in alone]


def test_the_tables_name_only_existing_folders() -> None:
    tables = (rings.NOTHING, (rings.EACH,), rings.ON_ENGINES, rings.MORE, rings.LIMITS)
    assert [place for table in tables for place in table if not (ROOT / place).exists()] == []
