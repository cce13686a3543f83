"""The ring that a test is in."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests import rings
from tests.rings import ALL, CHECK, ENGINES, SANDBOX, chosen, ring

from ..cli.command import ROOT


class Item:
    def __init__(self, nodeid: str, **params: str) -> None:
        self.nodeid = nodeid
        self.callspec = SimpleNamespace(params=params)

    def get_closest_marker(self, name: str) -> None:
        return None


def item(nodeid: str, **params: str) -> Any:
    return Item(nodeid, **params)


UNIT = item("tests/unit/test_a.py::test_b")
TOOL = item("tests/mcp/test_a.py::test_b")
EMBEDDED = item("tests/hostile/test_a.py::test_b[embedded]", backend_name="embedded")
DOCKER = item("tests/hostile/test_a.py::test_b[docker]", backend_name="docker")
EACH = [item(f"tests/conformance/test_a.py::test_b[{name}]", backend_name=name) for name in ("docker", "podman")]
RUBY = item("tests/conformance/test_a.py::test_b[docker-ruby]", backend_name="docker", language="ruby")
TURNS = [item(f"{rings.IN_TURNS[1]}[{name}]", backend_name=name) for name in ("embedded", "docker", "podman")]
OWN = item("tests/containers/test_a.py::test_b")
PODMANS = item("tests/containers/test_a.py::test_b[podman]", backend_name="podman")
CLUSTERS = item("tests/cluster/test_a.py::test_b")
CHANGES = item(f"{rings.ALONE[0]}::test_b")
BATCH = item("tests/slurm/test_a.py::test_b")
LOAD = item(f"{rings.ALONE[1]}::test_b")
LIBRARY = item(f"{rings.IN_PYTHON[0]}::test_b[embedded-python]", backend_name="embedded", language="python")
OUTSIDE = {
    way: item(f"{rings.OUTSIDE}test_a.py::test_b[mcp_1-{way}]", outside="mcp_1", way=way) for way in ("stdio", "http")
}
OTHER = item(f"{rings.OUTSIDE}test_a.py::test_b[fastmcp-stdio]", outside="fastmcp", way="stdio")
GEM = item(f"{rings.IN_PYTHON[0]}::test_b[embedded-ruby]", backend_name="embedded", language="ruby")
EVERYTHING = [
    *(UNIT, TOOL, EMBEDDED, DOCKER, *EACH, RUBY, *TURNS, OWN, PODMANS, CLUSTERS, CHANGES, BATCH, LOAD, LIBRARY, GEM),
    *(*OUTSIDE.values(), OTHER),
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
        (LIBRARY, SANDBOX),
        (GEM, ALL),
        (OUTSIDE["stdio"], SANDBOX),
        (OUTSIDE["http"], ALL),
        (OTHER, ALL),
    ],
)
def test_folder_backend_and_language_decide(test: Any, expected: str) -> None:
    assert ring(test) == expected


@pytest.mark.parametrize(
    ("which", "run"),
    [
        (CHECK, [UNIT]),
        (SANDBOX, [UNIT, TOOL, EMBEDDED, TURNS[0], LIBRARY, OUTSIDE["stdio"]]),
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
        pair = [item(f"{rings.PROTOCOLS_IN_TURNS[0]}::test_{number}[{era}]", era=era) for era in run]
        [one] = chosen(pair, which=SANDBOX)
        run["legacy" if "legacy" in one.nodeid else "2026-07-28"] += 1
        assert chosen(pair, which=ALL) == pair
    assert min(run.values()) > 25
    both = [item(f"tests/mcp/test_a.py::test_b[{era}]", era=era) for era in run]
    assert chosen(both, which=SANDBOX) == both


def test_tests_that_take_the_whole_machine_run_alone() -> None:
    assert chosen(EVERYTHING, concurrency="alone") == [CHANGES, LOAD]
    assert chosen(EVERYTHING, concurrency="parallel") == [test for test in EVERYTHING if test not in (CHANGES, LOAD)]


def test_the_tables_name_only_existing_tests() -> None:
    tables = (
        rings.NOTHING,
        (rings.EACH,),
        rings.ON_ENGINES,
        rings.IN_TURNS,
        rings.ONLY_IN_ALL,
        rings.IN_PYTHON,
        rings.PROTOCOLS_IN_TURNS,
        (rings.OUTSIDE,),
        rings.ALONE,
        rings.LIMITS,
    )
    named = {name.partition("::")[::2] for table in tables for name in table}
    assert [file for file, _ in named if not (ROOT / file).exists()] == []
    assert [
        test
        for file, _, test in (name.partition("::") for name in rings.IN_TURNS)
        if f"def {test}(" not in (ROOT / file).read_text()
    ] == []
