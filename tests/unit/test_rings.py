"""Which ring a test is in."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.rings import ALL, ENGINES, LIMITS, ON_ENGINES, ONLY_IN_ALL, SANDBOX, outside, ring

from ..cli.command import ROOT


class Item:
    def __init__(self, nodeid: str, **params: str) -> None:
        self.nodeid = nodeid
        self.callspec = SimpleNamespace(params=params)


def item(nodeid: str, **params: str) -> Any:
    return Item(nodeid, **params)


UNIT = item("tests/unit/test_a.py::test_b")
EMBEDDED = item("tests/hostile/test_a.py::test_b[embedded]", backend_name="embedded")
DOCKER = item("tests/hostile/test_a.py::test_b[docker]", backend_name="docker")
OWN = item("tests/containers/test_a.py::test_b")
BATCH = item("tests/slurm/test_a.py::test_b")
EVERYTHING = [UNIT, EMBEDDED, DOCKER, OWN, BATCH]


@pytest.mark.parametrize(
    ("test", "expected"), [(UNIT, SANDBOX), (EMBEDDED, SANDBOX), (DOCKER, ENGINES), (OWN, ENGINES), (BATCH, ALL)]
)
def test_folder_and_backend_decide(test: Any, expected: str) -> None:
    assert ring(test) == expected


@pytest.mark.parametrize(
    ("chosen", "run"),
    [
        (SANDBOX, [UNIT, EMBEDDED]),
        (ENGINES, [DOCKER, OWN]),
        (ALL, EVERYTHING),
        (None, EVERYTHING),
    ],
)
def test_a_ring_runs_what_is_in_it_and_all_runs_everything(chosen: str | None, run: list[Any]) -> None:
    left = outside(chosen, EVERYTHING)
    assert [test for test in EVERYTHING if test not in left] == run


def test_each_case_that_all_engines_share_is_run_by_one_of_them() -> None:
    cases = [item(f"tests/a.py::test_b[{name}]", backend_name=name) for name in ("embedded", "docker", "podman")]
    left = outside(ENGINES, cases)
    assert cases[0] in left
    assert len(left) == 2


def test_what_is_named_is_there() -> None:
    assert [name for name in {*ON_ENGINES, *ONLY_IN_ALL, *LIMITS} if not (ROOT / name).is_dir()] == []
