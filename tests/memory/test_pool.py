"""The pool on the backend in memory: what it decides, each failure, and a cancellation at each moment.

What a warm sandbox is, on real engines, is tested in `conformance/test_pool.py`.
"""

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.base.errors import CapacityReached, EngineUnavailable, PoolTimeout, StartFailed, Unavailable
from llm_sandbox_mcp.base.policy import Policy, narrow
from llm_sandbox_mcp.pool import pool as pools
from llm_sandbox_mcp.pool.leases import Lease, Owned
from llm_sandbox_mcp.pool.pool import Pool
from tests.memory.backend import MemoryBackend, MemorySandbox
from tests.pools import one_warm
from tests.unit.policies import POLICY

from .pools import DAY, Warming, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
def warming() -> Warming:
    return Warming()


async def filled(pool: Pool) -> Owned:
    """Waits for the warm sandbox, and returns the pool's own record of it."""
    pool.keep_warm("python", POLICY)
    await pool.until(one_warm)
    [owned] = [found for found in pool._members.values() if found.interpreter is not None]
    return owned


async def turns(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("passed", range(5))
async def test_a_request_that_is_cancelled_at_any_turn_leaves_the_warm_sandbox_to_the_next_request(
    engine: MemoryBackend, warming: Warming, passed: int
) -> None:
    async with opened(engine, warming, max=1) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.warm == 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.acquire, "python", POLICY)
            await turns(passed)
            handed = pool.statistics().hits == 1
            tasks.cancel_scope.cancel()
        assert handed or passed < 4
        if not handed:
            assert (await pool.acquire("python", POLICY)).interpreters.languages
        now = pool.statistics()
        assert (now.leased, now.hits, engine.made) == (1, 1, 1)


@pytest.mark.parametrize("passed", range(12))
@pytest.mark.parametrize("language", ["python", "bash"])
async def test_an_opening_that_is_cancelled_at_any_turn_leaves_no_unwanted_sandbox(
    engine: MemoryBackend, warming: Warming, language: str, passed: int
) -> None:
    async with opened(engine, warming, max=2, idle_timeout=0.05) as pool:
        pool.keep_warm("python", POLICY)
        got: list[Lease] = []

        async def acquire() -> None:
            got.append(await pool.acquire(language, POLICY))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(acquire)
            await turns(passed)
            tasks.cancel_scope.cancel()
        for lease in got:
            lease.release()
        await pool.until(lambda now: (now.warm, now.warming, now.closing, now.leased, now.waiting) == (1, 0, 0, 0, 0))
        assert len(engine.live) == 1


@pytest.mark.parametrize("passed", range(8))
async def test_a_pool_that_is_closed_at_any_turn_of_warming_leaves_nothing(
    engine: MemoryBackend, warming: Warming, passed: int
) -> None:
    async with opened(engine, warming) as pool:
        pool.keep_warm("python", POLICY)
        await turns(passed)
    with pytest.raises(Unavailable, match="shutting down"):
        await pool.acquire("python", POLICY)
    assert engine.made <= 1


async def test_a_request_that_waits_when_the_pool_is_closed_gets_an_error(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with anyio.create_task_group() as tasks, opened(engine, warming, max=1) as pool:
        await pool.acquire("python", POLICY)

        async def wait() -> None:
            with pytest.raises(Unavailable, match="the server is shutting down"):
                await pool.acquire("python", POLICY)

        tasks.start_soon(wait)
        await pool.until(lambda now: now.waiting == 1)


async def test_an_engine_failure_is_reported_only_to_the_request_that_it_affects(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with opened(engine, warming) as pool:
        engine.failure = EngineUnavailable("no engine is here")
        with pytest.raises(EngineUnavailable, match="no engine is here"):
            await pool.acquire("python", POLICY)
        assert (pool.statistics().failed, pool.statistics().last_error) == (1, "no engine is here")
        engine.failure = None
        assert (await pool.acquire("python", POLICY)).sandbox.alive


async def test_a_request_that_waited_for_a_failed_refill_gets_its_own_sandbox(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with opened(engine, warming) as pool:
        warming.failure = StartFailed("the runner does not answer")
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.opened == 1)
        lease = await pool.acquire("python", POLICY)
        assert not lease.interpreters.languages
        assert lease.sandbox.alive
        assert pool.statistics().last_error == "the runner does not answer"
        assert pool.statistics().misses == 1


async def test_a_request_that_takes_over_a_start_which_fails_gets_another_one(
    engine: MemoryBackend, warming: Warming
) -> None:
    engine.delay, engine.failure = 1.0, EngineUnavailable("gone for now")
    async with opened(engine, warming, max=1) as pool, anyio.create_task_group() as tasks:
        first = anyio.CancelScope()

        async def give_up() -> None:
            with first:
                await pool.acquire("python", POLICY)

        async def go_on() -> None:
            assert (await pool.acquire("python", POLICY)).sandbox.alive

        tasks.start_soon(give_up)
        await pool.until(lambda now: now.waiting == 1)
        tasks.start_soon(go_on)
        await pool.until(lambda now: now.waiting == 2)
        first.cancel()
        await pool.until(lambda now: now.failed == 1)
        engine.failure = None


async def test_a_failing_refill_pauses_longer_each_time_and_then_succeeds(
    engine: MemoryBackend, warming: Warming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_FIRST_BACKOFF", 0.02)
    async with opened(engine, warming) as pool:
        engine.failure = EngineUnavailable("gone for now")
        begun = anyio.current_time()
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.failed == 4)
        assert anyio.current_time() - begun >= 0.02 + 0.04 + 0.08
        assert engine.made == 4
        engine.failure = None
        await pool.until(lambda now: now.warm == 1)
        assert pool.statistics().last_error == "gone for now"


async def test_a_sandbox_beyond_the_minimum_is_closed_after_the_idle_time(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with opened(engine, warming, idle_timeout=0.1) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.warm == 1)
        gate = warming.gate = anyio.Event()
        await pool.acquire("python", POLICY)
        await pool.until(lambda now: now.opened == 2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.acquire, "python", POLICY)
            await pool.until(lambda now: now.waiting == 1 and now.warming == 2)
            tasks.cancel_scope.cancel()
        gate.set()
        await pool.until(lambda now: now.warm == 2)
        await pool.until(lambda now: now.warm == 1 and now.closed == 1)
        assert pool.statistics().leased == 1


async def test_a_warm_sandbox_that_died_before_it_reached_its_caller_is_replaced(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with opened(engine, warming) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.warm == 1)
        [dying] = engine.live.values()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dying.kill)
            lease = await pool.acquire("python", POLICY)
        assert lease.sandbox.alive
        await pool.until(lambda now: now.warm == 1 and now.closing == 0)
        assert dying.id not in engine.live


async def test_a_sandbox_that_ends_as_soon_as_it_is_made_is_not_made_again_and_again(
    engine: MemoryBackend, warming: Warming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemorySandbox, "alive", False)
    async with opened(engine, warming) as pool:
        lease = await pool.acquire("python", POLICY)
        assert not lease.sandbox.alive
        assert engine.made == 1


@pytest.mark.parametrize("other", [narrow(POLICY, {"timeout": 29}), POLICY.model_copy(update={"memory": 2})])
async def test_a_narrower_or_looser_policy_never_gets_a_warm_sandbox(
    engine: MemoryBackend, warming: Warming, other: Policy
) -> None:
    async with opened(engine, warming) as pool:
        warm = await filled(pool)
        lease = await pool.acquire("python", other)
        assert (lease.sandbox.policy, lease.interpreters.languages) == (other, ())
        assert (await pool.acquire("python", POLICY)).sandbox is warm.sandbox


async def test_work_without_an_interpreter_leaves_the_warm_sandboxes_to_others(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with opened(engine, warming) as pool:
        warm = await filled(pool)
        lease = await pool.acquire("python", POLICY, warm=False)
        assert lease.sandbox is not warm.sandbox
        assert not lease.interpreters.languages


async def test_a_healthy_warm_sandbox_is_checked_repeatedly_and_kept(engine: MemoryBackend, warming: Warming) -> None:
    async with opened(engine, warming, health_interval=30.0) as pool:
        warm = await filled(pool)
        checks = set()
        for _ in range(10):
            await anyio.sleep(20)
            checks.add(warm.member.checked_at)
        assert len(checks) > 5
        assert (pool.statistics().opened, pool.statistics().closed) == (1, 0)


async def test_a_warm_sandbox_that_is_too_old_is_replaced(engine: MemoryBackend, warming: Warming) -> None:
    async with opened(engine, warming, lifetime=1800.0) as pool:
        await filled(pool)
        await anyio.sleep(1790)
        assert pool.statistics().closed == 0
        await anyio.sleep(20)
        assert pool.statistics().closed == 1
        await pool.until(one_warm)


async def test_a_request_waits_for_the_first_release_if_all_are_in_use(engine: MemoryBackend, warming: Warming) -> None:
    async with opened(engine, warming, max=1) as pool:
        first = await pool.acquire("python", POLICY)
        later: list[Lease] = []

        async def wait() -> None:
            later.append(await pool.acquire("python", POLICY))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await pool.until(lambda now: now.waiting == 1)
            first.release()
        assert later[0].sandbox.id != first.sandbox.id


async def test_a_request_that_waits_for_too_long_gets_an_error_with_the_next_step(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with opened(engine, warming, max=1, acquire_timeout=60.0) as pool:
        await pool.acquire("python", POLICY)
        begun = anyio.current_time()
        with pytest.raises(PoolTimeout, match=r"all 1 sandboxes are in use .* within 1m; close a session .*pool\.max"):
            await pool.acquire("python", POLICY)
        assert anyio.current_time() - begun == pytest.approx(60, abs=1)
        assert pool.statistics().waiting == 0


async def test_a_request_is_refused_at_once_if_all_are_in_use_and_the_profile_says_so(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with opened(engine, warming, max=1, exhaustion="fail_fast") as pool:
        await pool.acquire("python", POLICY)
        with pytest.raises(CapacityReached, match=r"all 1 sandboxes are in use.*pool\.max"):
            await pool.acquire("python", POLICY)


async def test_a_request_gets_a_sandbox_outside_the_pool_if_all_are_in_use_and_the_profile_says_so(
    engine: MemoryBackend, warming: Warming
) -> None:
    async with opened(engine, warming, max=1, exhaustion="temporary") as pool:
        await pool.acquire("python", POLICY)
        beyond = await pool.acquire("python", POLICY)
        assert pool.statistics().leased == 2
        beyond.release()
        await pool.until(lambda now: (now.leased, now.warm, now.warming, now.closing) == (1, 0, 0, 0))


async def test_a_warm_sandbox_makes_room_for_another_language(engine: MemoryBackend, warming: Warming) -> None:
    async with opened(engine, warming, max=1) as pool:
        await filled(pool)
        lease = await pool.acquire("bash", POLICY)
        await pool.until(lambda now: now.closed >= 1)
        lease.release()
        await pool.until(one_warm)


async def test_each_sandbox_is_counted_once_by_what_is_done_with_it(engine: MemoryBackend, warming: Warming) -> None:
    async with opened(engine, warming, max=9) as pool:
        await filled(pool)
        leases = [await pool.acquire("bash", POLICY) for _ in range(6)]
        engine.delay = DAY / 10
        for lease in leases[:2]:
            lease.release()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.acquire, "other", POLICY)
            await pool.until(lambda now: now.waiting == 1)
            now = pool.statistics()
            assert (now.warm, now.warming, now.leased, now.closing) == (1, 1, 4, 2)
            assert {(one.language, one.warm, one.warming, one.leased, one.closing) for one in now.keys} == {
                ("python", 1, 0, 0, 0),
                ("bash", 0, 0, 4, 2),
                ("other", 0, 1, 0, 0),
            }
            tasks.cancel_scope.cancel()


async def test_the_usual_wait_for_a_sandbox_is_told_in_milliseconds(engine: MemoryBackend, warming: Warming) -> None:
    async with opened(engine, warming, max=4) as pool:
        assert pool.statistics().acquire_ms is None
        for engine.delay in (1 / 3, 0.0, 2.0):
            await pool.acquire("python", POLICY)
        usual = pool.statistics().acquire_ms
        assert usual is not None
        assert usual == pytest.approx(1000 / 3, rel=0.1)
        assert usual == round(usual, 3)
