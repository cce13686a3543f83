"""What the server does when its machine is full."""

from collections.abc import Sequence

import anyio
import pytest

from llm_sandbox_mcp.aio.tasks import open_tasks
from llm_sandbox_mcp.backends.room import Room
from llm_sandbox_mcp.base.errors import CapacityReached, PoolTimeout
from llm_sandbox_mcp.base.principal import ANONYMOUS
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.sessions.live import LiveSessions
from tests.memory.backend import MemoryBackend
from tests.unit.policies import POLICY

from .pools import Warming, opened

pytestmark = pytest.mark.anyio


class Narrow(MemoryBackend):
    """An engine with room for two sandboxes."""

    def room(self) -> Sequence[Room]:
        return Room("seats", 9, "sit closer"), Room("beds", 2, "make more")


async def test_a_pool_has_no_more_sandboxes_than_there_is_room_for() -> None:
    engine = Narrow()
    async with opened(engine, Warming(), max=5, acquire_timeout=1.0) as pool:
        leases = [await pool.acquire("python", POLICY) for _ in range(2)]
        with pytest.raises(PoolTimeout, match="all 2 sandboxes are in use"):
            await pool.acquire("python", POLICY)
        leases[0].release()
        await pool.acquire("python", POLICY)
        assert len(engine.live) == 2


async def test_if_there_is_no_room_the_longest_idle_session_makes_some() -> None:
    limits = load_profile().sessions
    async with opened(Narrow(), Warming(), max=5) as pool, open_tasks() as tasks:
        sessions = LiveSessions(pool, limits, tasks)
        with anyio.fail_after(30):
            first, second = (sessions.open("python", POLICY, ANONYMOUS) for _ in range(2))
            async with second.exclusive():
                third = sessions.open("python", POLICY, ANONYMOUS)
                assert first.closed and not second.closed
                async with third.exclusive():
                    refusal = "the server's beds are enough for 2 sandboxes, and all sessions are busy; .*: make more$"
                    with pytest.raises(CapacityReached, match=refusal):
                        sessions.open("python", POLICY, ANONYMOUS)
        tasks.cancel_scope.cancel()
