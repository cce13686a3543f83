"""Which engine runs which case of the tests that run on one engine instead of all."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from llm_sandbox_mcp.backends import BACKENDS
from tests.engines import REQUIRE
from tests.turns import by_case, by_language, left_out

ENGINES = tuple(name for name in BACKENDS if name != "embedded")


@dataclass(eq=False)
class Item:
    nodeid: str
    callspec: Any
    fails: bool = False

    def get_closest_marker(self, name: str) -> bool:
        return self.fails and name == "xfail"


def item(test: str, backend: str, number: int = 0, *, fails: bool = False, **arguments: str) -> Any:
    params = {"backend_name": backend, "case": number, **arguments}
    return Item(f"tests/a.py::{test}[{'-'.join(map(str, params.values()))}]", SimpleNamespace(params=params), fails)


def run(items: list[Any], by: Callable[[pytest.Item], Hashable] = by_language) -> list[tuple[str, int]]:
    """Engine and case of each test that is run."""
    others = left_out(items, by)
    return [(one.callspec.params["backend_name"], one.callspec.params["case"]) for one in items if one not in others]


@pytest.fixture(autouse=True)
def a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "somewhere")


def test_by_language_only_the_first_case_of_a_test_is_run_on_one_engine() -> None:
    assert run([item("test_b", engine, number) for engine in ENGINES for number in range(3)]) == [(ENGINES[0], 0)]


def test_by_case_each_case_is_run_on_one_engine() -> None:
    found = run([item("test_b", engine, number) for engine in ENGINES for number in range(6)], by_case)
    assert sorted(number for _, number in found) == [0, 1, 2, 3, 4, 5]
    assert Counter(engine for engine, _ in found) == dict.fromkeys(ENGINES, 2)


def test_a_case_without_an_engine_is_run() -> None:
    items = [item("test_b", "", number) for number in range(2)]
    assert left_out(items, by_case) == set()


def test_the_engines_take_turns() -> None:
    found = run([item(f"test_{number}", engine) for engine in ENGINES for number in range(9)])
    assert Counter(engine for engine, _ in found) == dict.fromkeys(ENGINES, 3)


def test_each_language_is_run() -> None:
    found = run([item("test_b", engine, language=name) for name in ("python", "ruby") for engine in ENGINES])
    assert len(found) == 2


def test_a_single_engine_runs_all() -> None:
    assert run([item(f"test_{number}", "podman") for number in range(9)]) == [("podman", 0)] * 9


@pytest.mark.parametrize("required", [False, True])
def test_a_missing_cluster_gets_a_turn_only_if_it_is_required(monkeypatch: pytest.MonkeyPatch, required: bool) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setattr("tests.turns.kubeconfig", lambda: None)
    monkeypatch.setenv(REQUIRE, "kubernetes" if required else "")
    found = run([item(f"test_{number}", engine) for number in range(6) for engine in ENGINES])
    assert ("kubernetes" in {engine for engine, _ in found}) == required
    assert len(found) == 6


def test_a_language_without_an_image_in_the_cluster_is_run_on_another_engine() -> None:
    found = run([item(f"test_{number}", engine, language="ruby") for number in range(6) for engine in ENGINES])
    assert {engine for engine, _ in found} == {"docker", "podman"}


def test_an_engine_that_is_expected_to_fail_a_test_does_not_run_it_for_all() -> None:
    found = run([item(f"test_{number}", engine, fails=engine == "podman") for number in range(6) for engine in ENGINES])
    assert Counter(engine for engine, _ in found) == {"docker": 3, "kubernetes": 3}
