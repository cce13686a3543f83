"""A sandbox in which nothing happens costs the server nothing: no thread, no timer and so no poll of its own."""

import asyncio
import threading
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.wiring import open_service
from tests.engines import small_profile

pytestmark = pytest.mark.anyio

FEW, MANY = 2, 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def timers() -> int:
    """Those that the event loop waits for; what polls has one, or a thread."""
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return sum(not timer.cancelled() for timer in scheduled)


async def open_sessions(service: Service, count: int) -> tuple[int, int]:
    """Opens sessions one after the other until there are so many; the threads and the timers that there are then."""
    while len(service.list_sessions()) < count:
        assert (await service.execute("x = 1")).status == "ok"
    await service.pool_until(lambda pool: pool.warming == 0)
    return threading.active_count(), timers()


async def test_threads_and_timers_are_as_many_for_twenty_sandboxes_as_for_two(engine: str, folder: Path) -> None:
    profile = small_profile(engine, folder, sessions={"max": MANY}, pool={"min": 0, "max": MANY})
    with anyio.fail_after(120):
        async with open_service(profile) as service:
            few = await open_sessions(service, FEW)
            assert await open_sessions(service, MANY) == few
