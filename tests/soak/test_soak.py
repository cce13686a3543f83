"""A server that was used for a while has not grown. `python -m tests.soak` does the same for hours."""

import os
from collections.abc import Mapping

import pytest

from llm_sandbox_mcp.backends import BACKENDS
from tests.engines import need

from .serving import available, served
from .soaking import Part, grown, rates, soak

SECONDS = float(os.environ.get("SANDBOX_SOAK", "60"))


@pytest.mark.only_in_all
@pytest.mark.anyio
@pytest.mark.timeout(300 + 2 * SECONDS)
@pytest.mark.parametrize("backend_name", BACKENDS)
async def test_nothing_grows_with_the_number_of_runs(backend_name: str) -> None:
    await need(backend_name)
    with served(backend_name) as server:
        parts = [part async for part in soak(server, available(backend_name), SECONDS, parts=3)]
    assert not grown(parts, backend_name)


SIZES = {"server": 70 << 20}
COUNTS = {"descriptors": 20, "processes": 4}


def part(
    runs: int, memory: Mapping[str, int] = SIZES, counts: Mapping[str, int] = COUNTS, wrong: tuple[str, ...] = ()
) -> Part:
    return Part(runs, wrong, [0.1], memory, counts)


def test_counts_that_stay_the_same_or_shrink_have_not_grown() -> None:
    assert not grown([part(100), part(200, counts={"descriptors": 30, "processes": 9}), part(300)], "embedded")
    assert not grown(
        [part(100), part(200), part(300, {"server": 60 << 20}, {"descriptors": 19, "processes": 4})], "embedded"
    )
    assert not grown([part(1), part(10_000, {"server": 80 << 20}), part(20_000, {"server": 85 << 20})], "embedded")


def test_one_more_descriptor_is_reported() -> None:
    found = grown([part(100), part(200), part(300, counts={"descriptors": 21, "processes": 4})], "embedded")
    assert found == ["descriptors have grown from 20 to 21 in 200 runs"]


def test_idle_connections_are_reported_beyond_their_maximum() -> None:
    assert not grown([part(1), part(2), part(3, counts={"descriptors": 52, "processes": 4})], "docker")
    found = grown([part(1), part(2), part(3, counts={"descriptors": 53, "processes": 4})], "docker")
    assert found == ["descriptors have grown from 20 to 53 in 2 runs"]


def test_idle_threads_are_reported_beyond_their_maximum() -> None:
    counts = {"threads": 7}
    assert not grown(
        [part(100, counts=counts), part(200, counts=counts), part(300, counts={"threads": 47})], "embedded"
    )
    found = grown([part(100, counts=counts), part(200, counts=counts), part(300, counts={"threads": 48})], "embedded")
    assert found == ["threads have grown from 7 to 48 in 200 runs"]


def test_memory_is_reported_beyond_its_limit_per_run() -> None:
    found = grown([part(1), part(10_000), part(20_000, {"server": 77 << 20})], "embedded")
    assert found == ["the memory of the server has grown by 7,168 KiB in 10,000 runs"]


def test_memory_that_is_not_yet_stable_is_reported_beyond_a_higher_limit() -> None:
    assert not grown([part(1), part(200), part(300, {"server": 94 << 20})], "embedded")
    found = grown([part(1), part(200), part(300, {"server": 95 << 20})], "embedded")
    assert found == ["the memory of the server has grown by 25,600 KiB in 100 runs"]


def test_wrong_answers_are_reported() -> None:
    assert grown([part(1), part(2, wrong=("once: no",)), part(3)], "embedded") == ["once: no"]


def test_growth_is_shown_per_ten_thousand_runs() -> None:
    shown = rates([part(5_000), part(10_000), part(30_000, {"server": 75 << 20}, {"descriptors": 22, "processes": 4})])
    assert shown == {"descriptors": "+1.0", "processes": "+0.0", "server MiB": "+2.50", "p99": "1.00x"}
