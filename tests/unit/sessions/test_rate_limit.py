"""The limit on starts per second, for any times of requests."""

import re

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.errors import CapacityReached
from llm_sandbox_mcp.base.units import parse_duration
from llm_sandbox_mcp.sessions import rate_limit
from llm_sandbox_mcp.sessions.rate_limit import RateLimit


class Clock:
    """A clock that only the test moves."""

    now = 1000.0

    def current_time(self) -> float:
        return self.now


@given(st.integers(1, 20), st.lists(st.floats(0, 2), max_size=200))
def test_no_second_has_more_than_a_burst_and_the_regular_starts(per_second: int, pauses: list[float]) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rate_limit, "anyio", clock)
        starts, taken = RateLimit(per_second), []
        for pause in pauses:
            clock.now += pause
            try:
                starts.take()
                taken.append(clock.now)
            except CapacityReached:
                pass
        for first in taken:
            assert sum(first <= time < first + 1 for time in taken) <= 2 * per_second
        assert len(taken) <= per_second * (1 + sum(pauses)) + 1


@pytest.mark.parametrize("per_second", [0.1, 1, 3, 50])
def test_a_start_after_the_time_in_the_refusal_is_allowed(per_second: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(rate_limit, "anyio", clock)
    starts = RateLimit(per_second)
    for _ in range(max(1, int(per_second))):
        starts.take()
    with pytest.raises(CapacityReached, match="starts_per_second in the profile") as refusal:
        starts.take()
    wait = re.search(r"try again in ([^,]+),", str(refusal.value))
    assert wait is not None
    clock.now += parse_duration(wait[1]) * 1.001  # the message has four digits
    starts.take()


def test_a_first_start_is_allowed_even_at_less_than_one_per_second() -> None:
    async def take() -> None:
        RateLimit(0.01).take()

    anyio.run(take)
