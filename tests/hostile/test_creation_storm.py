"""Attack: creating endless sandboxes. Outcome: as many start as the profile allows, the others are refused with the
next step, and the server keeps answering."""

import re
from collections import Counter

import anyio
import pytest

from llm_sandbox_mcp.base.errors import CapacityReached, Unavailable
from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio

STORM = 200
PACE = {"sessions": {"max": 64, "starts_per_second": 4.0}}
"""Sandboxes that started just before the storm count towards the four."""
FULL = {"sessions": {"max": 1000, "starts_per_second": 1000.0}, "pool": {"min": 0, "max": 4, "exhaustion": "fail_fast"}}
WAIT = {**FULL, "pool": {"min": 0, "max": 4, "exhaustion": "wait", "acquire_timeout": 1.0}}
QUOTA = {"sessions": {"max": 4, "starts_per_second": 1000.0}}


async def storm(arena: Arena, size: int = STORM) -> Counter[str]:
    """Opens `size` sessions at once while the neighbour works; counts the outcomes, by status or refusal."""
    outcomes: Counter[str] = Counter()

    async def open_one() -> None:
        try:
            result = await execute(arena.service, "print(6 * 7)", timeout=20, keep_session=False)
            outcomes[result.status] += 1
        except Unavailable as refusal:
            outcomes[re.sub(r"\d[\d.]*m?s", "TIME", str(refusal))] += 1

    async def work() -> None:
        while True:
            with anyio.fail_after(ANSWER):
                await arena.neighbour_works()

    async with anyio.create_task_group() as working:
        working.start_soon(work)
        async with anyio.create_task_group() as opening:
            for _ in range(size):
                opening.start_soon(open_one)
        working.cancel_scope.cancel()
    assert outcomes.total() == size
    return outcomes


@pytest.mark.parametrize("limits", [PACE], indirect=True)
async def test_starts_beyond_the_rate_are_refused_with_the_time_to_wait(arena: Arena) -> None:
    outcomes = await storm(arena)
    refusal = (
        "sandboxes are started at most 4 times a second; try again in TIME, "
        "or raise sessions.starts_per_second in the profile"
    )
    assert set(outcomes) <= {"ok", refusal}, outcomes
    assert outcomes[refusal] > STORM - 40, outcomes


CLOSE_ONE = "all 4 sandboxes are in use; close a session, or raise pool.max in the profile"
WAITED = (
    "all 4 sandboxes are in use and none became free within TIME; "
    "close a session and try again, or raise pool.max in the profile"
)


@pytest.mark.parametrize(
    ("limits", "size", "refusal"),
    [(FULL, STORM, CLOSE_ONE), (WAIT, 100, WAITED)],
    indirect=["limits"],
    ids=["at once", "later"],
)
async def test_sandboxes_beyond_the_pools_limit_are_refused(arena: Arena, size: int, refusal: str) -> None:
    outcomes = await storm(arena, size)
    assert outcomes["ok"] >= 2 and outcomes[refusal], outcomes
    assert set(outcomes) == {"ok", refusal}, outcomes


@pytest.mark.parametrize("limits", [QUOTA], indirect=True)
async def test_sessions_beyond_the_limit_are_refused_while_all_are_busy(arena: Arena) -> None:
    async with anyio.create_task_group() as tasks:
        for session in (arena.neighbour, arena.next, "", ""):
            tasks.start_soon(
                lambda session: execute(arena.service, "input_ = 0\nwhile True: pass", session_id=session, timeout=6),
                session,
            )
        # Wait until all runs have begun: a sandbox that nobody waits for any more would stay as an additional warm one.
        while sum(info.running and info.runs > 0 for info in arena.service.sessions.list()) < 4:
            await anyio.lowlevel.checkpoint()
        for _ in range(STORM):
            with pytest.raises(CapacityReached, match=r"all 4 sessions are busy; wait for one, or raise sessions\.max"):
                await execute(arena.service, "1")
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("limits", [QUOTA], indirect=True)
async def test_a_storm_of_new_sessions_replaces_its_own_sessions_and_none_that_is_in_use(arena: Arena) -> None:
    # This session was used only once, so the server cannot distinguish it from those of the storm.
    await arena.service.sessions.close(arena.next)
    arena.next = ""
    seen = {(await execute(arena.service, "1")).session_id for _ in range(20)}
    left = {info.id for info in arena.service.sessions.list()}
    assert len(seen) == 20 and len(left) == 4 and arena.neighbour in left
    await arena.neighbour_works()
