"""How many sandboxes were asked for at once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from llm_sandbox_mcp.pool.demand import Demand
from tests.effort import tries


def test_requests_at_about_the_same_time_are_counted_together() -> None:
    demand = Demand()
    for at in (0.0, 0.1, 0.2, 5.0, 5.1):
        demand.note(at)
    assert demand.most(5.2) == 3


def test_a_rush_is_forgotten_after_two_minutes_and_smaller_ones_since_then_are_not() -> None:
    demand = Demand()
    for at in (0.0, 0.1, 0.2, 100.0, 100.1):
        demand.note(at)
    assert demand.most(119.0) == 3
    assert demand.most(121.0) == 2
    assert demand.most(221.0) == 0


@settings(max_examples=tries(200))
@given(gaps=st.lists(st.floats(0, 200), max_size=50))
def test_the_largest_rush_is_found_however_requests_come(gaps: list[float]) -> None:
    demand, now, times = Demand(), 0.0, list[float]()
    for gap in gaps:
        now += gap
        times.append(now)
        demand.note(now)
        sizes = {at: sum(at - 0.5 <= other <= at for other in times if other <= at) for at in times}
        assert demand.most(now) == max(size for at, size in sizes.items() if at >= now - 120)
