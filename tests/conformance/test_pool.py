"""The warm pool, on every backend: warm sandboxes are fresh and alive, and match exactly what is requested."""

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.backends.base import Backend, Sandbox
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.errors import CapacityReached, PoolTimeout
from llm_sandbox_mcp.languages import load_languages
from llm_sandbox_mcp.places import Places
from llm_sandbox_mcp.policy import Policy, narrow
from llm_sandbox_mcp.pool import pool as pools
from llm_sandbox_mcp.pool.leases import Lease
from llm_sandbox_mcp.pool.plan import State
from llm_sandbox_mcp.pool.pool import Pool
from llm_sandbox_mcp.profile import Profile
from llm_sandbox_mcp.results import PoolStatistics
from llm_sandbox_mcp.runs.interpreter import Interpreter, start_interpreter
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.wiring import open_backend, open_service
from tests.engines import need, small_profile, surroundings
from tests.leftovers import look, nothing_beyond
from tests.pools import open_pool

pytestmark = pytest.mark.anyio

LANGUAGES = load_languages()
BASH = {"pool": {"min": 1, "languages": ("bash",)}}


async def warm_up(sandbox: Sandbox, language: str) -> Interpreter:
    interpreter = await start_interpreter(sandbox, Places(LANGUAGES[language]))
    await interpreter.check(10)
    return interpreter


def opened(backend: Backend, **changes: object) -> AbstractAsyncContextManager[Pool]:
    """A pool that keeps one warm sandbox for Bash."""
    return open_pool(backend, warm_up, languages=("bash",), **changes)


@pytest.fixture
def policy(profile: Profile) -> Policy:
    return profile.limits.policy()


def one_warm(now: PoolStatistics) -> bool:
    return (now.warm, now.warming, now.closing) == (1, 0, 0)


async def filled(pool: Pool, policy: Policy) -> Any:
    """Waits for the warm sandbox, and returns the pool's own record of it."""
    pool.keep_warm("bash", policy)
    await pool.until(one_warm)
    [owned] = [found for found in pool._members.values() if found.member.state is State.WARM]
    return owned


async def said(lease: Lease, code: str) -> str:
    """What code prints in the interpreter that came with a lease."""
    assert lease.interpreter is not None
    outcome = await lease.interpreter.run(RunRequest(code, timeout=5, output=1000, grace=1), 1)
    assert outcome.ending == "answered"
    return outcome.stdout.decode()


async def test_a_warm_sandbox_comes_with_an_interpreter_that_runs_code_at_once(
    backend: Backend, policy: Policy
) -> None:
    async with opened(backend) as pool:
        warm = await filled(pool, policy)
        lease = await pool.acquire("bash", policy)
        assert lease.sandbox is warm.sandbox
        assert await said(lease, "echo $((6 * 7))") == "42\n"
        assert (pool.statistics().hits, pool.statistics().misses) == (1, 0)
        await pool.until(one_warm)


async def test_a_used_sandbox_is_destroyed_and_never_seen_again(backend: Backend, policy: Policy) -> None:
    async with opened(backend) as pool:
        seen = set()
        for _ in range(4):
            await filled(pool, policy)
            lease = await pool.acquire("bash", policy)
            assert await said(lease, "ls /sandbox; echo x > /sandbox/mine") == ""
            seen.add(lease.sandbox.id)
            lease.release()
            await pool.until(lambda now: now.closed >= len(seen))
            assert not lease.sandbox.alive
        assert len(seen) == 4


async def test_a_narrower_or_looser_policy_never_gets_a_warm_sandbox(backend: Backend, policy: Policy) -> None:
    async with opened(backend) as pool:
        warm = await filled(pool, policy)
        for other in (
            narrow(policy, {"pids": policy.pids - 1}),
            policy.model_copy(update={"memory": policy.memory * 2}),
        ):
            lease = await pool.acquire("bash", other)
            assert (lease.sandbox.policy, lease.interpreter) == (other, None)
        assert (await pool.acquire("bash", policy)).sandbox is warm.sandbox


async def test_work_without_an_interpreter_leaves_the_warm_sandboxes_to_others(
    backend: Backend, policy: Policy
) -> None:
    async with opened(backend) as pool:
        warm = await filled(pool, policy)
        lease = await pool.acquire("bash", policy, warm=False)
        assert lease.sandbox is not warm.sandbox
        assert (await lease.sandbox.run(["echo", "x"], {"PATH": PATH})).stdout == b"x\n"


@pytest.mark.parametrize("what", ["sandbox", "interpreter"])
async def test_a_warm_sandbox_that_was_killed_is_replaced_and_not_handed_out(
    backend: Backend, policy: Policy, what: str
) -> None:
    async with opened(backend) as pool:
        warm = await filled(pool, policy)
        if what == "sandbox":
            await warm.sandbox.kill()
        else:
            await warm.interpreter._process.kill()
        while warm.usable:
            await anyio.lowlevel.checkpoint()
        lease = await pool.acquire("bash", policy)
        assert lease.sandbox.id != warm.sandbox.id
        assert (await lease.sandbox.run(["echo", "x"], {"PATH": PATH})).stdout == b"x\n"
        assert "ended before it was used" in pool.statistics().last_error
        await pool.until(one_warm)


async def test_a_warm_sandbox_that_no_longer_answers_is_detected_and_replaced(
    backend: Backend, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_HEALTH", 0.1)
    async with opened(backend, health_interval=0.2) as pool:
        warm = await filled(pool, policy)
        await warm.interpreter._process.signal(signal.SIGSTOP)
        await pool.until(lambda now: now.closed >= 1)
        assert "does not answer" in pool.statistics().last_error
        await pool.until(one_warm)
        assert await said(await pool.acquire("bash", policy), "echo x") == "x\n"


async def test_a_healthy_warm_sandbox_is_checked_repeatedly_and_kept(backend: Backend, policy: Policy) -> None:
    async with opened(backend, health_interval=0.05) as pool:
        warm = await filled(pool, policy)
        first = warm.member.checked_at
        for _ in range(3):
            before = warm.member.checked_at
            await pool.until(lambda now, before=before: warm.member.checked_at > before)  # type: ignore[misc]
        assert warm.member.checked_at > first
        assert pool.statistics().opened == 1


async def test_a_warm_sandbox_that_is_too_old_is_replaced(backend: Backend, policy: Policy) -> None:
    async with opened(backend, lifetime=0.3) as pool:
        await filled(pool, policy)
        await pool.until(lambda now: now.closed >= 1)
        await pool.until(one_warm)


async def test_a_request_waits_for_the_first_release_if_all_are_in_use(backend: Backend, policy: Policy) -> None:
    async with opened(backend, max=1) as pool:
        first = await pool.acquire("bash", policy)
        later: list[Lease] = []

        async def wait() -> None:
            later.append(await pool.acquire("bash", policy))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await pool.until(lambda now: now.waiting == 1)
            first.release()
        assert later[0].sandbox.id != first.sandbox.id


async def test_a_request_that_waits_for_too_long_gets_an_error_with_the_next_step(
    backend: Backend, policy: Policy
) -> None:
    async with opened(backend, max=1, acquire_timeout=0.1) as pool:
        await pool.acquire("bash", policy)
        with pytest.raises(
            PoolTimeout, match=r"all 1 sandboxes are in use .* within 100ms; close a session .*pool\.max"
        ):
            await pool.acquire("bash", policy)
        assert pool.statistics().waiting == 0


async def test_a_request_is_refused_at_once_if_all_are_in_use_and_the_profile_says_so(
    backend: Backend, policy: Policy
) -> None:
    async with opened(backend, max=1, exhaustion="fail_fast") as pool:
        await pool.acquire("bash", policy)
        with pytest.raises(CapacityReached, match=r"all 1 sandboxes are in use.*pool\.max"):
            await pool.acquire("bash", policy)


async def test_a_request_gets_a_sandbox_outside_the_pool_if_all_are_in_use_and_the_profile_says_so(
    backend: Backend, policy: Policy
) -> None:
    async with opened(backend, max=1, exhaustion="temporary") as pool:
        await pool.acquire("bash", policy)
        beyond = await pool.acquire("bash", policy)
        assert pool.statistics().leased == 2
        beyond.release()
        await pool.until(lambda now: (now.leased, now.warm, now.warming, now.closing) == (1, 0, 0, 0))


async def test_a_warm_sandbox_makes_room_for_another_language(backend: Backend, policy: Policy) -> None:
    async with opened(backend, max=1) as pool:
        await filled(pool, policy)
        lease = await pool.acquire("python", policy)
        await pool.until(lambda now: now.closed >= 1)
        lease.release()
        await pool.until(one_warm)


@pytest.mark.parametrize("passed", range(0, 24, 2))
async def test_a_pool_that_is_closed_while_it_warms_leaves_nothing(
    backend_name: str, profile: Profile, policy: Policy, folder: Path, passed: int
) -> None:
    await need(backend_name)
    state = partial(look, folder / "runtime")
    async with open_backend(profile, surroundings(folder)) as backend:
        async with backend.sandbox(policy):
            pass
        before = state()
        async with opened(backend) as pool:
            pool.keep_warm("bash", policy)
            for _ in range(passed):
                await anyio.lowlevel.checkpoint()
        await nothing_beyond(before, state, 5)


@asynccontextmanager
async def serving(profile: Profile) -> AsyncIterator[Service]:
    await need(profile.backend.name)
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            await service.warm()
            yield service


@pytest.mark.parametrize("changes", [{"pool": {"min": 2, "languages": ("python",)}}])
async def test_two_sessions_share_nothing_though_both_were_warm(profile: Profile) -> None:
    async with serving(profile) as service:
        await service.pool_until(lambda now: now.warm == 2)
        one = await service.execute("x = 1\nopen('mine', 'w').close()\nimport os\nos.listdir('.')")
        other = await service.execute("'x' in globals(), os.listdir('.') if 'os' in globals() else []")
        assert (one.result, other.result) == ("['mine']", "(False, [])")
        assert service.pool().hits == 2
        assert (await service.execute("x", session_id=one.session_id)).result == "1"


@pytest.mark.parametrize("changes", [{"pool": {"min": 1, "languages": ("python",)}}])
async def test_a_run_in_a_warm_interpreter_is_like_any_first_run(profile: Profile) -> None:
    async with serving(profile) as service:
        await service.pool_until(one_warm)
        run = await service.execute("print(given, '_' in globals())\n1/0", variables={"given": [1]})
        assert run.stdout.text == "[1] False\n"
        assert "<cell 1>" in run.stderr.text
        assert run.artifacts == () and run.notes == ()
        assert service.pool().hits == 1


@pytest.mark.parametrize("changes", [BASH])
async def test_nothing_is_warmed_unless_a_server_asks_for_it(service: Service) -> None:
    await service.execute("echo x", language="bash", keep_session=False)
    await service.pool_until(lambda now: now.closing == 0)
    assert (service.pool().opened, service.pool().warm, service.pool().warming) == (1, 0, 0)


@pytest.mark.parametrize("changes", [BASH])
async def test_describing_a_language_leaves_the_warm_sandbox_in_the_pool(profile: Profile) -> None:
    async with serving(profile) as service:
        await service.pool_until(one_warm)
        await service.describe_language("bash")
        assert (service.pool().warm, service.pool().hits) == (1, 0)


@pytest.mark.parametrize("changes", [BASH])
async def test_files_that_are_copied_in_before_the_first_run_are_found_by_it(profile: Profile) -> None:
    async with serving(profile) as service:
        await service.pool_until(one_warm)
        session = service.sessions.open("bash")
        await service.files.copy_in(session, "given", b"text")
        assert (await service.execute("cat given", language="bash", session_id=session)).stdout.text == "text"
        assert service.pool().hits == 1


BROKEN = """
name = "broken"
title = "Broken"
extension = ".b"
version_command = ["true"]
stateful = true
[runner]
argv = ["sh", "-c", "read request; echo no such interpreter >&2; exit 3"]
"""


@pytest.fixture
def broken(folder: Path, backend_name: str, changes: Mapping[str, Mapping[str, object]]) -> Profile:
    """A profile that keeps a language warm whose interpreter never starts."""
    (folder / "further" / "broken").mkdir(parents=True)
    (folder / "further" / "broken" / "handler.toml").write_text(BROKEN)
    image = {"images": {"broken": "llm-sandbox-mcp-bash"}}
    profile = small_profile(
        backend_name, folder, pool={"min": 1, "languages": ("broken", "bash")}, containers=image, kubernetes=image
    )
    folders = (*profile.handlers.folders, str(folder / "further"))
    return profile.model_copy(update={"handlers": profile.handlers.model_copy(update={"folders": folders})})


async def test_a_language_that_cannot_be_warmed_is_reported_and_does_not_affect_others(broken: Profile) -> None:
    async with serving(broken) as service:
        await service.pool_until(lambda now: now.failed > 0 and now.warm == 1)
        assert "no such interpreter" in service.pool().last_error
        assert (await service.execute("echo x", language="bash")).stdout.text == "x\n"
        assert (await service.execute("1", language="broken")).status == "error"
        assert service.pool().failed < 5
