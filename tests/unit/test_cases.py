"""What is run where, of tests that have many cases."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from llm_sandbox_mcp.backends import BACKENDS
from tests.cases import left_out
from tests.engines import REQUIRE

EVERYWHERE = tuple(BACKENDS)
ENGINES = tuple(name for name in BACKENDS if name != "embedded")


@dataclass(eq=False)
class Item:
    nodeid: str
    callspec: Any


def items(test: str, cases: int, backends: tuple[str, ...] = EVERYWHERE, **arguments: str) -> list[Any]:
    return [
        Item(f"{test}[{case}-{backend}]", SimpleNamespace(params={"backend_name": backend, "case": case, **arguments}))
        for backend in backends
        for case in range(cases)
    ]


def run(test: str, cases: int, backends: tuple[str, ...] = EVERYWHERE, **arguments: str) -> dict[str, set[int]]:
    """The cases that each backend runs."""
    made = items(test, cases, backends, **arguments)
    found: dict[str, set[int]] = defaultdict(set)
    for item in set(made) - left_out(made):
        found[item.callspec.params["backend_name"]].add(item.callspec.params["case"])
    return found


@pytest.fixture(autouse=True)
def a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "somewhere")


@pytest.mark.parametrize("cases", [1, 2, 3, 30])
def test_each_case_is_run_on_bubblewrap_and_on_one_engine(cases: int) -> None:
    found = run("tests/a.py::test_b", cases)
    assert found.pop("embedded") == set(range(cases))
    assert sorted(case for run in found.values() for case in run) == list(range(cases))
    assert len(found) == min(cases, len(ENGINES))


def test_each_engine_gets_its_share_of_tests_with_one_case() -> None:
    counts = Counter(engine for number in range(300) for engine in run(f"tests/a.py::test_{number}", 1))
    assert counts.pop("embedded") == 300
    assert counts.keys() == set(ENGINES)
    assert min(counts.values()) > 60


def test_the_turns_do_not_go_by_what_else_is_run() -> None:
    one, other = items("tests/a.py::test_b", 3), items("tests/a.py::test_c", 5)
    assert left_out(one + other) == left_out(one) | left_out(other)


def test_what_bubblewrap_does_not_run_is_run_whole() -> None:
    assert run("tests/a.py::test_b", 5, ENGINES) == {name: set(range(5)) for name in ENGINES}


def test_a_cluster_that_is_not_there_has_no_turn_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.delenv(REQUIRE, raising=False)
    found = run("tests/a.py::test_b", 6)
    assert found["docker"] | found["podman"] == set(range(6))
    assert found["kubernetes"] == set(range(6))


def test_a_language_that_the_cluster_has_no_image_of_is_run_on_another_engine() -> None:
    found = run("tests/a.py::test_b", 6, language="ruby")
    assert found["docker"] | found["podman"] == set(range(6))


def test_tests_without_backends_are_left_alone() -> None:
    alone: Any = Item("tests/a.py::test_b", None)
    assert left_out([alone, *items("tests/a.py::test_c", 9, ("nowhere",))]) == set()
