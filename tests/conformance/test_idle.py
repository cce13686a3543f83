"""An idle sandbox costs the server nothing: it has no thread and no timer of its own, so nothing polls it."""

import asyncio
import threading
from collections.abc import Mapping

import pytest

from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute

pytestmark = pytest.mark.anyio

FEW, MANY = 2, 12


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    return {"sessions": {"max": MANY}, "pool": {"min": 0, "max": MANY}}


def timers() -> int:
    """The number of timers that the event loop waits for; anything that polls has a timer or a thread."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return sum(not timer.cancelled() for timer in scheduled)


async def open_sessions(service: Service, count: int) -> tuple[int, int]:
    """Opens sessions one after the other until there are `count`; returns the numbers of threads and timers then."""
    while len(service.sessions.list()) < count:
        assert (await execute(service, "x = 1")).status == "ok"
    await service.pool_until(lambda pool: pool.warming == 0)
    return threading.active_count(), timers()


async def test_threads_and_timers_are_as_many_for_twelve_sandboxes_as_for_two(service: Service) -> None:
    await service.backend.probe()  # until it is known whether sandboxes are forks, the server waits for that
    few = await open_sessions(service, FEW)
    assert await open_sessions(service, MANY) == few
