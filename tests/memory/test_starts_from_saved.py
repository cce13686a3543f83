"""Sandboxes in which a saved session is opened while they wait: when, who gets them, and what a failure or another
saved session does. Here, a saved session is something that the language `script` sets.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.base.errors import BadState, SandboxError
from llm_sandbox_mcp.base.messages import Note
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.base.results import OnProgress, PoolStatistics
from llm_sandbox_mcp.pool import pool as pools
from llm_sandbox_mcp.pool.leases import Lease, Started
from llm_sandbox_mcp.pool.pool import Pool
from llm_sandbox_mcp.runs.interpreters import Interpreters
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import open_session
from tests.memory.backend import MemoryBackend
from tests.pools import one_warm
from tests.unit.policies import POLICY

from .conftest import run
from .pools import Warming, opened, places_of
from .test_cancellation import ENDED, MOMENTS, cancelled_run
from .test_pool import turns
from .test_preloads import QUICK, ROOMY, SLOW, loaded, modules_of
from .test_stock import zygote_of

pytestmark = pytest.mark.anyio

TOLD = Note("not_kept", "not kept: the variable s")
STARTED = Started(7, [TOLD])


class Starting:
    """Opens a saved session: lets the interpreter set a name, unless `failure` is set."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.gate: anyio.Event | None = None
        """If given, it waits until it is set before it ends."""
        self.ends = False
        """Whether the interpreter has ended afterwards, as one does that has preloaded modules, if the saved session
        has libraries and no variables."""
        self.value = "1"
        """What the saved session is now."""
        self.begun: list[str] = []
        """The sandboxes in which it was opened."""
        self.loaded: list[str] = []
        """What their interpreters had imported by then."""

    async def __call__(self, interpreters: Interpreters, language: str, on_progress: OnProgress | None) -> Started:
        self.begun.append(interpreters.sandbox.id)
        value = self.value
        interpreter = await interpreters.start(places_of(language))
        outcome = await interpreter.run(asked(f"loaded\nset start {value}"), 0)
        self.loaded.append(outcome.stdout.decode())
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        interpreters.ran.add(language)
        if self.ends:
            await interpreters.end(language)
        return STARTED


def asked(code: str) -> RunRequest:
    return RunRequest(code, timeout=5, output=1000, grace=1)


async def start_of(lease: Lease, language: str = "python") -> object:
    """What the saved session was that is open in a leased sandbox; None if none is."""
    interpreter = await lease.interpreters.start(places_of(language))
    outcome = await interpreter.run(asked("get start"), 1)
    assert outcome.report is not None
    return outcome.report.result


@pytest.fixture
def starting() -> Starting:
    return Starting()


@asynccontextmanager
async def opened_from(engine: MemoryBackend, starting: Starting, **changes: Any) -> AsyncIterator[Pool]:
    """A pool whose sandboxes for Python, and only these, start from a saved session."""
    async with opened(engine, Warming(), **changes) as pool:
        pool.start, pool.starting = starting, ("python",)
        yield pool


def counts(*expected: int) -> Callable[[PoolStatistics], bool]:
    """How many sandboxes are warm, warming, leased and closing."""
    return lambda now: (now.warm, now.warming, now.leased, now.closing) == expected


async def test_a_saved_session_is_open_in_a_warm_sandbox_before_anyone_gets_it(
    engine: MemoryBackend, starting: Starting
) -> None:
    starting.gate = anyio.Event()
    async with opened_from(engine, starting) as pool:
        pool.keep_warm("python", POLICY)
        await anyio.sleep(30)
        assert (starting.begun, counts(0, 1, 0, 0)(pool.statistics())) == (["memory-1"], True)
        starting.gate.set()
        await pool.until(one_warm)
        lease = await pool.acquire("python", POLICY)
        assert (lease.sandbox.id, lease.started) == ("memory-1", STARTED)
        assert (lease.interpreters.used, await start_of(lease)) == (("python",), "1")
        assert pool.statistics().hits == 1
        await pool.until(counts(1, 0, 1, 0))
        assert starting.begun == ["memory-1", "memory-2"]  # once in each


async def test_a_request_for_which_nothing_waits_opens_the_saved_session_itself(
    engine: MemoryBackend, starting: Starting
) -> None:
    async with opened_from(engine, starting) as pool:
        lease = await pool.acquire("python", POLICY)
        assert (lease.started, lease.interpreters.languages, starting.begun) == (None, (), [])
        assert await pool.begin(lease, "python", None) == STARTED
        assert await start_of(lease) == "1"
        other = await pool.acquire("bash", POLICY)
        assert await pool.begin(other, "bash", None) is None
        assert (await start_of(other, "bash"), len(starting.begun)) == (None, 1)


async def test_a_request_that_comes_while_the_saved_session_is_opened_waits_for_it(
    engine: MemoryBackend, starting: Starting
) -> None:
    starting.gate = anyio.Event()
    async with opened_from(engine, starting) as pool, anyio.create_task_group() as tasks:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.opened == 1)
        leases: list[Lease] = []

        async def acquire() -> None:
            leases.append(await pool.acquire("python", POLICY))

        tasks.start_soon(acquire)
        await pool.until(lambda now: now.waiting == 1)
        await turns(20)
        assert (leases, pool.statistics().waiting) == ([], 1)
        starting.gate.set()
        await pool.until(lambda now: now.leased == 1)
        await turns(5)
        assert [(lease.sandbox.id, lease.started) for lease in leases] == [("memory-1", STARTED)]


async def test_a_warm_sandbox_has_an_interpreter_also_if_the_saved_session_has_ended_the_one_that_was_there(
    engine: MemoryBackend, starting: Starting
) -> None:
    starting.ends = True
    async with opened_from(engine, starting, health_interval=30.0) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(one_warm)
        await anyio.sleep(100)
        assert (pool.statistics().failed, pool.statistics().last_error) == (0, "")
        lease = await pool.acquire("python", POLICY)
        assert (lease.interpreters.languages, lease.started) == (("python",), STARTED)
        assert (pool.statistics().hits, lease.sandbox.id) == (1, "memory-1")


async def test_modules_are_imported_before_the_saved_session_is_opened(
    engine: MemoryBackend, starting: Starting
) -> None:
    async with opened_from(engine, starting, preloads={"python": [QUICK, SLOW]}) as pool:
        begun = anyio.current_time()
        pool.keep_warm("python", ROOMY)
        await pool.until(lambda now: now.warm == 1)
        assert anyio.current_time() - begun >= 30
        assert starting.loaded == [f"{QUICK} {SLOW}\n"]
        lease = await pool.acquire("python", ROOMY)
        assert await modules_of(lease) == f"{QUICK} {SLOW}\n"
        assert await start_of(lease) == "1"


async def test_the_saved_session_is_opened_in_sandboxes_that_are_forks_with_the_modules_too(
    engine: MemoryBackend, starting: Starting
) -> None:
    engine.forks = True
    async with opened_from(engine, starting, preloads={"python": [QUICK]}, zygote_of=zygote_of) as pool:
        for made in (1, 2, 3):
            await loaded(pool)
            lease = await pool.acquire("python", ROOMY)
            assert (lease.started, await start_of(lease), lease.sandbox.id) == (STARTED, "1", f"memory-{made}")
        assert starting.loaded[:3] == [f"{QUICK}\n"] * 3


async def test_a_module_that_spoils_its_sandbox_is_left_out_and_the_next_one_has_the_saved_session_open(
    engine: MemoryBackend, starting: Starting
) -> None:
    async with opened_from(engine, starting, preloads={"python": [QUICK, "die"]}) as pool:
        found = await loaded(pool)
        assert (found.modules, [*found.skipped]) == ((QUICK,), ["die"])
        assert (starting.begun, starting.loaded) == (["memory-2"], [f"{QUICK}\n"])
        assert await start_of(await pool.acquire("python", ROOMY)) == "1"


async def test_a_saved_session_that_cannot_be_opened_is_tried_again_after_longer_and_longer_pauses(
    engine: MemoryBackend, starting: Starting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_FIRST_BACKOFF", 1.0)
    starting.failure = BadState("'geo' is damaged")
    async with opened_from(engine, starting) as pool:
        begun = anyio.current_time()
        pool.keep_warm("python", POLICY)
        for failures, pauses in ((1, 0), (2, 1), (3, 3), (4, 7)):
            await pool.until(lambda now, failures=failures: now.failed == failures)  # type: ignore[misc]
            assert anyio.current_time() - begun == pytest.approx(pauses, abs=0.1)
        assert pool.statistics().last_error == "'geo' is damaged"
        cold = await pool.acquire("python", POLICY)
        assert (cold.started, cold.interpreters.languages, pool.statistics().hits) == (None, (), 0)
        with pytest.raises(BadState):
            await pool.begin(cold, "python", None)
        cold.release()
        starting.failure = None
        await pool.until(one_warm)
        assert (await pool.acquire("python", POLICY)).started == STARTED


async def test_a_request_that_waits_for_a_start_which_fails_gets_a_sandbox_of_its_own(
    engine: MemoryBackend, starting: Starting
) -> None:
    starting.gate, starting.failure = anyio.Event(), BadState("'geo' is damaged")
    async with opened_from(engine, starting) as pool, anyio.create_task_group() as tasks:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.opened == 1)
        leases: list[Lease] = []

        async def acquire() -> None:
            leases.append(await pool.acquire("python", POLICY))

        tasks.start_soon(acquire)
        await pool.until(lambda now: now.waiting == 1)
        starting.gate.set()
        await pool.until(lambda now: now.leased == 1)
        await turns(5)
        assert [(lease.sandbox.id, lease.started) for lease in leases] == [("memory-2", None)]


@pytest.mark.parametrize(
    ("language", "options"),
    [("python", {"empty": True}), ("python", {"warm": False}), ("bash", {}), ("bash", {"empty": True})],
    ids=["empty", "no interpreter", "another language", "another language, empty"],
)
async def test_other_work_never_gets_a_sandbox_in_which_a_saved_session_is_open(
    engine: MemoryBackend, starting: Starting, language: str, options: dict[str, Any]
) -> None:
    async with opened_from(engine, starting, max=2) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(one_warm)
        first = await pool.acquire(language, POLICY, **options)
        assert (first.started, await start_of(first, language)) == (None, None)
        await pool.until(counts(1, 0, 1, 0))
        second = await pool.acquire(language, POLICY, **options)  # there is no room: the warm one makes some
        assert (second.started, await start_of(second, language)) == (None, None)
        assert starting.begun == ["memory-1"]


async def test_a_language_that_starts_from_nothing_is_kept_warm_as_ever(
    engine: MemoryBackend, starting: Starting
) -> None:
    async with opened_from(engine, starting, languages=("bash",)) as pool:
        pool.keep_warm("bash", POLICY)
        await pool.until(one_warm)
        lease = await pool.acquire("bash", POLICY)
        assert (lease.interpreters.languages, lease.started, starting.begun) == (("bash",), None, [])


async def test_a_request_for_an_empty_sandbox_does_not_wait_for_the_one_that_is_being_started(
    engine: MemoryBackend, starting: Starting
) -> None:
    starting.gate = anyio.Event()
    async with opened_from(engine, starting) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.opened == 1)
        lease = await pool.acquire("python", POLICY, empty=True)
        assert (lease.sandbox.id, lease.started) == ("memory-2", None)


async def test_renewing_replaces_what_waits_in_that_language_and_nothing_else(
    engine: MemoryBackend, starting: Starting
) -> None:
    async with opened_from(engine, starting, languages=("python", "bash"), max=9) as pool:
        pool.starting = ("python", "bash")
        pool.keep_warm("bash", POLICY)
        pool.keep_warm("python", POLICY)
        await pool.until(counts(2, 0, 0, 0))
        lease = await pool.acquire("python", POLICY)
        await pool.until(counts(2, 0, 1, 0))
        waiting = {owned.sandbox.id for owned in pool._members.values() if owned.sandbox} - {lease.sandbox.id}
        starting.value = "2"
        pool.renew("python")
        await pool.until(counts(2, 0, 1, 0))
        assert (lease.sandbox.alive, await start_of(lease)) == (True, "1")
        left = {owned.sandbox.id for owned in pool._members.values() if owned.sandbox} - {lease.sandbox.id}
        assert len(left & waiting) == 1
        assert await start_of(await pool.acquire("python", POLICY)) == "2"
        assert await start_of(await pool.acquire("bash", POLICY), "bash") == "1"


async def test_renewing_spares_empty_sandboxes_and_those_without_an_interpreter(
    engine: MemoryBackend, starting: Starting
) -> None:
    async with opened_from(engine, starting, max=9) as pool:
        leases = [
            await pool.acquire("python", POLICY, empty=True),
            await pool.acquire("python", POLICY, warm=False),
            await pool.acquire("bash", POLICY),
            await pool.acquire("python", POLICY),
        ]
        pool.renew("python")
        await anyio.sleep(10)
        assert all(lease.sandbox.alive for lease in leases)
        assert pool.statistics().closed == 0


@pytest.mark.parametrize("passed", [0.0, 0.1, 0.25, 10.0, 30.25, 31.0])
async def test_what_is_being_started_when_it_is_renewed_is_started_again(
    engine: MemoryBackend, starting: Starting, passed: float
) -> None:
    """While it imports, while the saved session is opened, and afterwards."""
    starting.gate = anyio.Event()
    async with opened_from(engine, starting, preloads={"python": [SLOW]}) as pool:
        pool.keep_warm("python", ROOMY)
        await anyio.sleep(passed)
        if passed == 31:
            starting.gate.set()
            await pool.until(one_warm)
        starting.value = "2"
        pool.renew("python")
        starting.gate.set()
        await pool.until(one_warm)
        assert await start_of(await pool.acquire("python", ROOMY)) == "2"
        assert engine.made == 2


async def test_renewing_ends_the_pause_after_a_failure(engine: MemoryBackend, starting: Starting) -> None:
    starting.failure = BadState("'geo' is damaged")
    async with opened_from(engine, starting) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.failed == 6)
        starting.failure = None
        begun = anyio.current_time()
        pool.renew("python")
        await pool.until(one_warm)
        assert anyio.current_time() - begun < 1


async def test_a_request_that_waits_when_the_pool_is_renewed_gets_the_new_one(
    engine: MemoryBackend, starting: Starting
) -> None:
    starting.gate = anyio.Event()
    async with opened_from(engine, starting, max=1) as pool, anyio.create_task_group() as tasks:
        pool.keep_warm("python", POLICY)
        await pool.until(lambda now: now.opened == 1)
        leases: list[Lease] = []

        async def acquire() -> None:
            leases.append(await pool.acquire("python", POLICY))

        tasks.start_soon(acquire)
        await pool.until(lambda now: now.waiting == 1)
        pool.renew("python")
        await pool.until(lambda now: now.leased == 1)
        await turns(5)
        assert [(lease.sandbox.id, lease.started) for lease in leases] == [("memory-2", None)]


@pytest.mark.parametrize("preloads", [{}, {"python": [QUICK]}], ids=["", "preloads"])
@pytest.mark.parametrize("passed", range(0, 60, 4))
async def test_a_pool_that_is_closed_at_any_turn_of_a_start_leaves_nothing(
    engine: MemoryBackend, starting: Starting, preloads: dict[str, Sequence[str]], passed: int
) -> None:
    async with opened_from(engine, starting, preloads=preloads) as pool:
        pool._asked_at = anyio.current_time() - 1
        pool.keep_warm("python", ROOMY)
        await turns(passed)
    assert engine.made <= 1


@pytest.fixture
def from_saved(service: Service, starting: Starting) -> Service:
    """A service whose sessions start from a saved one."""
    service._pool.start, service._pool.starting = starting, ("script",)
    return service


async def keep_warm(service: Service) -> None:
    """Waits until a sandbox of the service is warm."""
    await service.warm(["script"])
    await service.pool_until(one_warm)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("changes", [{"pool": {"min": 1, "languages": ("script",)}}])
async def test_a_session_has_what_the_saved_one_had_and_what_is_to_be_told_is_told_once(
    from_saved: Service, starting: Starting, *, warm: bool
) -> None:
    if warm:
        await keep_warm(from_saved)
    first = await run(from_saved, "get start")
    assert (first.result, first.notes) == ("1", (str(TOLD),))
    assert from_saved.pool().hits == warm
    again = await run(from_saved, "get start\nset start 5", session_id=first.session_id)
    assert (again.result, again.notes) == ("1", ())
    other = await run(from_saved, "get start")
    assert (other.result, other.notes) == ("1", (str(TOLD),))
    assert (await run(from_saved, "get start", session_id=first.session_id)).result == "5"
    assert len({*starting.begun}) == len(starting.begun), "it was opened twice in a sandbox"


@pytest.mark.parametrize("changes", [{"pool": {"min": 1, "languages": ("script",)}}])
async def test_lower_limits_start_from_the_saved_session_too(from_saved: Service, starting: Starting) -> None:
    await keep_warm(from_saved)
    session = open_session(from_saved, "script", {"timeout": 4})
    assert (await run(from_saved, "get start", session_id=session, timeout=3)).result == "1"
    assert from_saved.pool().hits == 0


async def test_a_session_that_lost_its_sandbox_starts_from_the_saved_one_and_says_what_was_lost(
    from_saved: Service,
) -> None:
    session = open_session(from_saved, "script")
    await run(from_saved, "set start 5", session_id=session)
    with pytest.raises(SandboxError):
        await run(from_saved, "die", session_id=session)
    again = await run(from_saved, "get start", session_id=session)
    lost = "started fresh: since an earlier run its sandbox ended; variables and files are lost"
    assert (again.result, {*again.notes}) == ("1", {lost, str(TOLD)})


async def test_a_session_that_could_not_start_has_run_nothing_and_starts_later(
    from_saved: Service, starting: Starting, engine: MemoryBackend
) -> None:
    starting.failure = BadState("it cannot be opened", "save it again")
    session = open_session(from_saved, "script")
    for _ in range(2):
        with pytest.raises(BadState, match="it cannot be opened; save it again"):
            await run(from_saved, "get start", session_id=session)
    await from_saved.pool_until(counts(0, 0, 0, 0))
    assert not engine.live
    starting.failure = None
    ran = await run(from_saved, "get start", session_id=session)
    assert (ran.result, ran.notes) == ("1", (str(TOLD),))
    assert from_saved.sessions.list()[0].runs == 1


async def test_a_run_for_which_no_sandbox_can_be_started_leaves_no_session(
    from_saved: Service, starting: Starting, engine: MemoryBackend
) -> None:
    starting.failure = BadState("it cannot be opened")
    with pytest.raises(BadState):
        await run(from_saved, "get start", keep_session=False)
    with pytest.raises(BadState):
        await run(from_saved, "get start")
    assert from_saved.sessions.list() == ()
    await from_saved.pool_until(counts(0, 0, 0, 0))
    assert not engine.live


async def test_a_session_that_is_closed_while_it_starts_leaves_no_sandbox(
    from_saved: Service, starting: Starting, engine: MemoryBackend
) -> None:
    for passed in range(40):
        session = open_session(from_saved, "script")
        told: list[SandboxError] = []

        async def call(session: str, told: list[SandboxError]) -> None:
            try:
                await run(from_saved, "get start", session_id=session)
            except SandboxError as error:
                told.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, session, told)
            await turns(passed)
            await from_saved.sessions.close(session)
        await from_saved.pool_until(counts(0, 0, 0, 0))
        assert (from_saved.sessions.list(), engine.live) == ((), {}), passed
    assert len(starting.begun) > 10, "most were closed while they started"


async def test_a_session_goes_on_after_a_call_that_was_cancelled_while_it_started(
    from_saved: Service, starting: Starting, engine: MemoryBackend
) -> None:
    engine.delay = 0.01
    for steps in MOMENTS:
        session = open_session(from_saved, "script")
        await cancelled_run(from_saved, steps, "get start", session)
        again = await run(from_saved, "get start", session_id=session)
        assert (again.status, again.result) == ("ok", "1"), (steps, again)
        await from_saved.sessions.close(session)
    await anyio.sleep(ENDED)
    assert not engine.live


async def test_a_session_is_not_left_by_a_call_that_was_cancelled_while_it_started(
    from_saved: Service, engine: MemoryBackend
) -> None:
    for steps in MOMENTS:
        await cancelled_run(from_saved, steps, "get start\nsleep 1000")
        assert all(info.runs and not info.running for info in from_saved.sessions.list()), steps
        for info in from_saved.sessions.list():
            await from_saved.sessions.close(info.id)
    await anyio.sleep(ENDED)
    assert not engine.live


async def test_a_narrower_policy_is_a_sandbox_of_its_own(engine: MemoryBackend, starting: Starting) -> None:
    other: Policy = POLICY.model_copy(update={"timeout": 1.0})
    async with opened_from(engine, starting) as pool:
        pool.keep_warm("python", POLICY)
        await pool.until(one_warm)
        lease = await pool.acquire("python", other)
        assert (lease.sandbox.policy, lease.started) == (other, None)
