"""Interpreters that import modules while they wait: when, what is left out, and who gets the sandbox meanwhile.

A module of these tests is what the language `script` does to import it.
"""

from collections.abc import Sequence

import anyio
import pytest

from llm_sandbox_mcp.base.results import Preload
from llm_sandbox_mcp.pool.leases import Lease
from llm_sandbox_mcp.pool.plan import State
from llm_sandbox_mcp.pool.pool import Pool
from llm_sandbox_mcp.runs.preloading import PATIENCE
from llm_sandbox_mcp.runs.requests import RunRequest
from tests.memory.backend import MemoryBackend
from tests.unit.policies import POLICY

from .pools import Warming, opened

pytestmark = pytest.mark.anyio

ROOMY = POLICY.model_copy(update={"memory": 1 << 20})
QUICK, SLOW = "set a 1", "sleep 30"


async def loaded(pool: Pool) -> Preload:
    """Waits until a warm sandbox has imported all that it does, and returns what is known of that."""
    pool.keep_warm("python", ROOMY)
    await pool.until(lambda now: now.warm == 1 and not any(one.member.unloaded for one in pool._members.values()))
    preload = pool.statistics().keys[0].preload
    assert preload is not None
    return preload


async def modules_of(lease: Lease) -> str:
    """What the interpreter of a lease has imported."""
    interpreter = lease.interpreters.get("python")
    assert interpreter is not None
    outcome = await interpreter.run(RunRequest("loaded", timeout=5, output=1000, grace=1), 1)
    assert outcome.stderr == b""
    return outcome.stdout.decode()


async def test_a_warm_interpreter_imports_its_modules_and_what_it_costs_is_counted(engine: MemoryBackend) -> None:
    async with opened(engine, Warming(), preloads={"python": [QUICK, SLOW], "bash": ["die"]}) as pool:
        found = await loaded(pool)
        assert (found.modules, found.skipped, found.memory) == ((QUICK, SLOW), {}, 2000)
        assert found.seconds == pytest.approx(30, abs=0.1)
        assert await modules_of(await pool.acquire("python", ROOMY)) == f"{QUICK} {SLOW}\n"
        assert pool.statistics().hits == 1


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("print Hello", "it prints when it is imported"),
        ("complain Deprecated", "it prints when it is imported"),
        ("flood", "it prints when it is imported"),
        ("complain Trace:\ncomplain ImportError: no\x1b[2J\nfail", r"importing it fails: ImportError: no\x1b[2J"),
        ("fail 3", "importing it fails"),
        ("sleep 61", f"importing it takes longer than {PATIENCE:g} s"),
        ("deaf\nsleep 1000", f"importing it takes longer than {PATIENCE:g} s"),
        ("exit 3", "importing it ends the interpreter with exit code 3"),
        ("outgrow", "importing it ends the interpreter with exit code 137"),
        ("die", "importing it ended the sandbox"),
        ("garble", "importing it ends too early"),
        ('report {"preloaded": {"starts": "threads"}}', "importing it starts threads"),
    ],
)
async def test_a_module_with_which_something_goes_wrong_leaves_nothing_behind_and_is_left_out_from_then_on(
    engine: MemoryBackend, module: str, reason: str
) -> None:
    async with opened(engine, Warming(), preloads={"python": [QUICK, module, "set b 1"]}) as pool:
        for _ in range(2):
            found = await loaded(pool)
            assert (found.modules, found.skipped) == ((QUICK, "set b 1"), {module: reason})
            lease = await pool.acquire("python", ROOMY)
            assert await modules_of(lease) == f"{QUICK} set b 1\n"
            lease.release()
        await loaded(pool)
        assert engine.made == 4  # one that was spoiled, two that were used, one that waits


async def test_what_is_avoided_is_told_even_if_nothing_is_left_to_import(engine: MemoryBackend) -> None:
    async with opened(engine, Warming(), preloads={"python": ["die", "exit 3"]}) as pool:
        found = await loaded(pool)
        assert found.modules == ()
        assert found.skipped.keys() == {"die", "exit 3"}
        assert (engine.made, pool.statistics().failed) == (3, 0)


async def test_a_module_that_is_not_there_is_looked_for_again_in_each_sandbox(engine: MemoryBackend) -> None:
    module = 'report {"preloaded": {"missing": true}}\ncomplain No module\nfail'
    async with opened(engine, Warming(), preloads={"python": [module, QUICK]}) as pool:
        found = await loaded(pool)
        assert (found.modules, found.skipped) == ((QUICK,), {module: "it is not installed"})
        assert engine.made == 1
        [owned] = pool._members.values()
        assert pool._preloads.left(owned.member.key)


async def test_nothing_is_imported_where_it_would_take_more_than_half_of_the_memory(engine: MemoryBackend) -> None:
    large = f'report {{"preloaded": {{"memory": {ROOMY.memory // 2}}}}}'
    async with opened(engine, Warming(), preloads={"python": [QUICK, large]}) as pool:
        found = await loaded(pool)
        assert (found.modules, found.memory) == ((), 0)
        assert found.skipped.keys() == {QUICK, large}
        assert engine.made == 2
        assert await modules_of(await pool.acquire("python", ROOMY)) == "\n"


async def test_a_request_that_comes_during_an_import_gets_another_sandbox(engine: MemoryBackend) -> None:
    async with opened(engine, Warming(), preloads={"python": [SLOW]}, max=2) as pool:
        pool.keep_warm("python", ROOMY)
        await pool.until(lambda now: any(one.member.state is State.LOADING for one in pool._members.values()))
        start = anyio.current_time()
        await pool.acquire("python", ROOMY)
        assert anyio.current_time() - start < 1
        await pool.acquire("python", ROOMY)  # there is no room for a third one: the import is given up
        assert anyio.current_time() - start < 2
        assert engine.made == 3


async def test_nothing_is_imported_while_requests_come_one_after_the_other(engine: MemoryBackend) -> None:
    async with opened(engine, Warming(), preloads={"python": [SLOW]}, max=3) as pool:
        pool._asked_at = anyio.current_time()
        pool.keep_warm("python", ROOMY)
        for _ in range(20):
            await pool.until(lambda now: now.warm == 1)
            lease = await pool.acquire("python", ROOMY)
            assert lease.interpreters.languages
            lease.release()
            await anyio.sleep(0.1)
        assert (await loaded(pool)).modules == (SLOW,)


@pytest.mark.parametrize("languages", [["python"], []])
@pytest.mark.parametrize("passed", [0.0, 0.1, 10.0, 29.9])
async def test_a_pool_that_is_closed_during_an_import_leaves_nothing(
    engine: MemoryBackend, passed: float, languages: Sequence[str]
) -> None:
    async with opened(engine, Warming(), preloads={name: [SLOW] for name in languages}) as pool:
        pool.keep_warm("python", ROOMY)
        await pool.until(lambda now: now.opened == 1)
        await anyio.sleep(passed)
    assert engine.made == 1
