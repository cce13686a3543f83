"""The pool's own logic in cases where an engine has to fail, or a call has to be cancelled, at one exact moment.

The sandboxes here are in memory; the tests with real sandboxes are in `conformance/test_pool.py`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.backends.base import Backend, Check, Sandbox
from llm_sandbox_mcp.errors import EngineUnavailable, StartFailed, Unavailable
from llm_sandbox_mcp.policy import Policy
from llm_sandbox_mcp.pool import pool as pools
from llm_sandbox_mcp.pool.leases import Lease
from llm_sandbox_mcp.pool.pool import Pool
from llm_sandbox_mcp.runs.interpreter import Interpreter
from tests.pools import open_pool
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio


class Memory:
    """A sandbox that only exists, without processes."""

    alive = True
    policy = POLICY


class InMemory(Backend):
    """Makes sandboxes in two turns of the event loop and ends them in two turns; lists the live ones."""

    name = "memory"

    def __init__(self) -> None:
        self.live: list[Memory] = []
        self.made = 0
        self.failure: Exception | None = None

    async def __aenter__(self) -> "InMemory":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def limits(self) -> Check:
        return Check("limits", "ok", "")

    async def probe(self) -> list[Check]:
        return []

    async def sweep(self) -> int:
        return 0

    @asynccontextmanager
    async def sandbox(self, policy: Policy, image: str = "") -> AsyncIterator[Sandbox]:
        self.made += 1
        await anyio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        sandbox = Memory()
        self.live.append(sandbox)
        try:
            await anyio.lowlevel.checkpoint()
            yield cast(Sandbox, sandbox)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
            self.live.remove(sandbox)


class Quiet:
    """An interpreter that answers."""

    running = True

    async def check(self, timeout: float) -> None:
        await anyio.lowlevel.checkpoint()


class Warming:
    """Starts interpreters, unless `failure` is set."""

    failure: Exception | None = None
    gate: anyio.Event | None = None
    """If given, a start waits until it is set."""

    async def __call__(self, sandbox: Sandbox, language: str) -> Interpreter:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return cast(Interpreter, Quiet())


@pytest.fixture
def engine() -> InMemory:
    return InMemory()


@pytest.fixture
def warming() -> Warming:
    return Warming()


@asynccontextmanager
async def opened(engine: InMemory, warming: Warming, **changes: object) -> AsyncIterator[Pool]:
    async with open_pool(engine, warming, **changes) as pool:
        yield pool
    assert engine.live == []


async def turns(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("passed", range(5))
async def test_a_request_that_is_cancelled_at_any_turn_leaves_the_warm_sandbox_to_the_next_request(
    engine: InMemory, warming: Warming, passed: int
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
            assert (await pool.acquire("python", POLICY)).interpreter is not None
        now = pool.statistics()
        assert (now.leased, now.hits, engine.made) == (1, 1, 1)


@pytest.mark.parametrize("passed", range(12))
@pytest.mark.parametrize("language", ["python", "bash"])
async def test_an_opening_that_is_cancelled_at_any_turn_leaves_no_unwanted_sandbox(
    engine: InMemory, warming: Warming, language: str, passed: int
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
    engine: InMemory, warming: Warming, passed: int
) -> None:
    async with opened(engine, warming) as pool:
        pool.keep_warm("python", POLICY)
        await turns(passed)
    with pytest.raises(Unavailable, match="shutting down"):
        await pool.acquire("python", POLICY)
    assert engine.made <= 1


async def test_a_request_that_waits_when_the_pool_is_closed_gets_an_error(engine: InMemory, warming: Warming) -> None:
    async with anyio.create_task_group() as tasks, opened(engine, warming, max=1) as pool:
        await pool.acquire("python", POLICY)

        async def wait() -> None:
            with pytest.raises(Unavailable, match="the server is shutting down"):
                await pool.acquire("python", POLICY)

        tasks.start_soon(wait)
        await pool.until(lambda now: now.waiting == 1)


async def test_an_engine_failure_is_reported_only_to_the_request_that_it_affects(
    engine: InMemory, warming: Warming
) -> None:
    async with opened(engine, warming) as pool:
        engine.failure = EngineUnavailable("no engine is here")
        with pytest.raises(EngineUnavailable, match="no engine is here"):
            await pool.acquire("python", POLICY)
        assert (pool.statistics().failed, pool.statistics().last_error) == (1, "no engine is here")
        engine.failure = None
        assert (await pool.acquire("python", POLICY)).sandbox.alive


async def test_a_request_that_waited_for_a_failed_refill_gets_its_own_sandbox(
    engine: InMemory, warming: Warming
) -> None:
    async with opened(engine, warming) as pool:
        warming.failure = StartFailed("the runner does not answer")
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.opened == 1)
        lease = await pool.acquire("python", POLICY)
        assert lease.interpreter is None
        assert lease.sandbox.alive
        assert pool.statistics().last_error == "the runner does not answer"
        assert pool.statistics().misses == 1


async def test_a_failing_refill_pauses_longer_each_time_and_then_succeeds(
    engine: InMemory, warming: Warming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_FIRST_REST", 0.02)
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


async def test_a_sandbox_beyond_the_minimum_is_closed_after_the_idle_time(engine: InMemory, warming: Warming) -> None:
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
    engine: InMemory, warming: Warming
) -> None:
    async with opened(engine, warming) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.warm == 1)
        [dying] = engine.live

        async def die() -> None:
            dying.alive = False

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(die)
            lease = await pool.acquire("python", POLICY)
        assert lease.sandbox.alive
        await pool.until(lambda now: now.warm == 1 and now.closing == 0)
        assert dying not in engine.live


async def test_a_sandbox_that_ends_as_soon_as_it_is_made_is_not_made_again_and_again(
    engine: InMemory, warming: Warming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "alive", False)
    async with opened(engine, warming) as pool:
        lease = await pool.acquire("python", POLICY)
        assert not lease.sandbox.alive
        assert engine.made == 1
