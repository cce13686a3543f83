"""Which tests run in the same process, and which run first."""

from collections import Counter

from tests.cli.command import ROOT
from tests.sides import BY_BACKEND, LONGEST, PARTS, TOGETHER, rank, unit


def test_a_file_runs_in_one_process_and_so_does_a_folder_that_shares_an_engine() -> None:
    assert unit("tests/unit/test_a.py::test_b[c::d]") == "tests/unit/test_a.py"
    assert unit("tests/containers/test_a.py::test_b") == unit("tests/containers/test_c.py::test_d") == TOGETHER[0]


def test_attacks_on_one_engine_run_in_one_process() -> None:
    first = unit("tests/hostile/test_a.py::test_b[docker]")
    assert first == unit("tests/hostile/test_c.py::test_d[x[y]-docker]")
    assert first != unit("tests/hostile/test_a.py::test_b[podman]")


def test_attacks_on_bubblewrap_are_divided_by_file() -> None:
    files = [file.relative_to(ROOT) for file in (ROOT / "tests" / "hostile").glob("test_*.py")]
    parts = Counter(unit(f"{file}::test_b[embedded-limits0]") for file in files)
    assert {unit(f"{file}::test_c[x-embedded]") for file in files} == {*parts}
    assert [len(parts)] == [*PARTS.values()]
    assert max(parts.values()) < len(files) / 2


def test_the_longest_tests_run_first() -> None:
    assert sorted(["tests/unit/test_a.py", *reversed(LONGEST)], key=rank) == [*LONGEST, "tests/unit/test_a.py"]


def test_the_tables_name_only_existing_files() -> None:
    assert [name for name in {*TOGETHER, *BY_BACKEND, *LONGEST} if not (ROOT / name).exists()] == []
