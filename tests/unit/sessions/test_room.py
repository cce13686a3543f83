"""How many sandboxes a machine has room for, and what the server does when it is full."""

import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.room import Room, memory, open_files, processes
from llm_sandbox_mcp.errors import CapacityReached, PoolTimeout
from llm_sandbox_mcp.profile import load_profile
from llm_sandbox_mcp.sessions.live import LiveSessions
from llm_sandbox_mcp.tasks import open_tasks
from tests.unit.policies import POLICY
from tests.unit.pool.test_pool import InMemory, Warming, opened


class Narrow(InMemory):
    """An engine with room for two sandboxes."""

    def room(self) -> Sequence[Room]:
        return Room("seats", 9, "sit closer"), Room("beds", 2, "make more")


@pytest.fixture
def soft() -> Iterator[int]:
    """The limit of open files, which is restored after the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_lower_limit_of_open_files_gives_room_for_fewer_sandboxes(soft: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    few = open_files()
    assert (few.of, few.sandboxes, few.step) == ("open files", 12, f"ulimit -n {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
    assert open_files().sandboxes == 0


def test_the_room_for_processes_and_memory_is_that_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/pid_max").write_text("32768\n")
    (tmp_path / "sys/kernel/threads-max").write_text("1600\n")
    (tmp_path / "meminfo").write_text("MemTotal:        1048576 kB\nMemFree: 1 kB\n")
    assert processes(tmp_path).sandboxes == 100
    assert memory(tmp_path).sandboxes == 32


@pytest.mark.anyio
async def test_a_pool_has_no_more_sandboxes_than_there_is_room_for() -> None:
    engine = Narrow()
    async with opened(engine, Warming(), max=5, acquire_timeout=0.01) as pool:
        leases = [await pool.acquire("python", POLICY) for _ in range(2)]
        with pytest.raises(PoolTimeout, match="all 2 sandboxes are in use"):
            await pool.acquire("python", POLICY)
        leases[0].release()
        await pool.acquire("python", POLICY)
        assert len(engine.live) == 2


@pytest.mark.anyio
async def test_if_there_is_no_room_the_longest_idle_session_makes_some() -> None:
    limits = load_profile().sessions
    async with opened(Narrow(), Warming(), max=5) as pool, open_tasks() as tasks:
        sessions = LiveSessions(pool, limits, tasks)
        with anyio.fail_after(30):
            first, second = (sessions.open("python", POLICY) for _ in range(2))
            async with second.exclusive():
                third = sessions.open("python", POLICY)
                assert first.closed and not second.closed
                async with third.exclusive():
                    refusal = "the server's beds are enough for 2 sandboxes, and all sessions are busy; .*: make more$"
                    with pytest.raises(CapacityReached, match=refusal):
                        sessions.open("python", POLICY)
        tasks.cancel_scope.cancel()
