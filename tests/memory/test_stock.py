"""The stock of a pool on a backend whose sandboxes are forks: what they have imported, how many wait, and when.

A module of these tests is what the language `script` does to import it.
"""

from collections.abc import Sequence
from functools import partial

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Zygote
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.base.results import PoolStatistics
from llm_sandbox_mcp.pool import preloads
from llm_sandbox_mcp.pool.leases import Lease
from llm_sandbox_mcp.pool.pool import Pool
from tests.memory.backend import MemoryBackend
from tests.unit.policies import POLICY

from .pools import Warming, opened, places_of
from .test_preloads import ROOMY, loaded, modules_of

pytestmark = pytest.mark.anyio

MODULE = "set a 1"
SMALL = ROOMY.model_copy(update={"memory": 2000})
"""So little that the module, which takes 1,000 bytes, leaves half of it."""


async def zygote_of(language: str, modules: Sequence[str], missed: frozenset[str]) -> Zygote | None:
    return preloads.zygote_of(places_of(language), modules, missed)


@pytest.fixture
def forking(engine: MemoryBackend) -> MemoryBackend:
    engine.forks = True
    return engine


def are_kept(number: int, now: PoolStatistics) -> bool:
    return (now.warm, now.warming, now.closing) == (number, 0, 0)


async def acquired(pool: Pool, policy: Policy = ROOMY) -> Lease:
    return await pool.acquire("python", policy)


async def test_sandboxes_are_forks_with_the_modules_that_one_has_imported_without_harm(forking: MemoryBackend) -> None:
    async with opened(forking, Warming(), preloads={"python": [MODULE, "fail"]}, zygote_of=zygote_of) as pool:
        await loaded(pool)
        first = await acquired(pool)
        assert await modules_of(first) == f"{MODULE}\n"
        before = forking.made
        await loaded(pool)
        second = await acquired(pool)
        assert await modules_of(second) == f"{MODULE}\n"
        assert [interpreter.missed for interpreter in second.interpreters] == [frozenset()]
        assert forking.made == before + 1, "it imported nothing, so nothing could go wrong with its sandbox"


@pytest.mark.parametrize(
    ("policy", "modules"),
    [(ROOMY.model_copy(update={"timeout": 1.0}), f"{MODULE}\n"), (SMALL, f"{MODULE}\n"), (POLICY, None)],
    ids=["another", "little memory", "too little memory"],
)
async def test_sandboxes_with_another_policy_are_forks_too_if_they_have_the_memory(
    forking: MemoryBackend, policy: Policy, modules: str | None
) -> None:
    too_little = policy.model_copy(update={"memory": 1999}) if modules is None else policy
    async with opened(forking, Warming(), preloads={"python": [MODULE]}, zygote_of=zygote_of) as pool:
        await loaded(pool)
        zygote = (await acquired(pool, too_little)).sandbox.zygote
        assert (zygote is None) == (modules is None)


async def test_as_many_are_kept_warm_as_were_asked_for_at_once_up_to_the_stock(forking: MemoryBackend) -> None:
    async with opened(forking, Warming(), preloads={"python": [MODULE]}, zygote_of=zygote_of, stock=3) as pool:
        await loaded(pool)
        for at_once, kept in ((2, 2), (5, 3), (1, 3)):
            leases = [await acquired(pool) for _ in range(at_once)]
            for lease in leases:
                lease.release()
            await pool.until(partial(are_kept, kept))
        await anyio.sleep(1000)  # longer than a rush is remembered, and than surplus sandboxes are kept
        assert pool.statistics().warm == 1


async def test_without_forks_the_stock_is_the_minimum(engine: MemoryBackend) -> None:
    async with opened(engine, Warming(), preloads={"python": [MODULE]}, zygote_of=zygote_of, stock=3) as pool:
        await loaded(pool)
        for lease in [await acquired(pool) for _ in range(5)]:
            lease.release()
        await loaded(pool)
        await anyio.sleep(10)
        assert pool.statistics().warm == 1


async def test_the_next_sandbox_is_made_a_moment_after_a_request_and_another_request_does_not_wait_for_it(
    forking: MemoryBackend,
) -> None:
    async with opened(forking, Warming(), preloads={"python": [MODULE]}, zygote_of=zygote_of) as pool:
        await loaded(pool)
        made = forking.made
        start = anyio.current_time()
        await acquired(pool)
        assert forking.made == made
        await acquired(pool)
        assert anyio.current_time() - start < 0.01
        assert forking.made == made + 1, "the second request makes its own"
        await pool.until(lambda now: now.warm == 1)
        assert 0.02 < anyio.current_time() - start < 0.1
