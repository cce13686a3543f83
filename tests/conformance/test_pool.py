"""The warm pool, on every backend: warm sandboxes are fresh and alive, and match exactly what is requested."""

import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.backends.base import Backend
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.pool import pool as pools
from llm_sandbox_mcp.pool.leases import Lease
from llm_sandbox_mcp.pool.plan import State
from llm_sandbox_mcp.pool.pool import Pool
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.runs.interpreter import Interpreter
from llm_sandbox_mcp.runs.interpreters import Interpreters
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, open_session
from llm_sandbox_mcp.wiring import open_backend, open_service
from tests.engines import need, surroundings
from tests.leftovers import look, nothing_beyond
from tests.pools import one_warm, open_pool

pytestmark = pytest.mark.anyio

LANGUAGES = load_languages()
BASH = {"pool": {"min": 1, "languages": ("bash",)}}


async def warm_up(interpreters: Interpreters, language: str) -> Interpreter:
    interpreter = await interpreters.start(Places(LANGUAGES[language]))
    await interpreter.check(10)
    return interpreter


def opened(backend: Backend, **changes: Any) -> AbstractAsyncContextManager[Pool]:
    """A pool that keeps one warm sandbox for Bash."""
    return open_pool(backend, warm_up, languages=("bash",), **changes)


@pytest.fixture
def policy(profile: Profile) -> Policy:
    return profile.limits.policy()


async def filled(pool: Pool, policy: Policy) -> Any:
    """Waits for the warm sandbox, and returns the pool's own record of it."""
    pool.keep_warm("bash", policy)
    await pool.until(one_warm)
    [owned] = [found for found in pool._members.values() if found.member.state is State.WARM]
    return owned


async def said(lease: Lease, code: str) -> str:
    """What code prints in the interpreter that came with a lease."""
    interpreter = lease.interpreters.get("bash")
    assert interpreter is not None
    outcome = await interpreter.run(RunRequest(code, timeout=5, output=1000, grace=1), 1)
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
        one = await execute(service, "x = 1\nopen('mine', 'w').close()\nimport os\nos.listdir('.')")
        other = await execute(service, "'x' in globals(), os.listdir('.') if 'os' in globals() else []")
        assert (one.result, other.result) == ("['mine']", "(False, [])")
        assert service.pool().hits == 2
        assert (await execute(service, "x", session_id=one.session_id)).result == "1"


@pytest.mark.parametrize("changes", [{"pool": {"min": 1, "languages": ("python",)}}])
async def test_a_run_in_a_warm_interpreter_is_like_any_first_run(profile: Profile) -> None:
    async with serving(profile) as service:
        await service.pool_until(one_warm)
        run = await execute(service, "print(given, '_' in globals())\n1/0", variables={"given": [1]})
        assert run.stdout.text == "[1] False\n"
        assert "<cell 1>" in run.stderr.text
        assert run.artifacts == () and run.notes == ()
        assert service.pool().hits == 1


PRELOAD = {"preload": ("decimal", "this", "asyncio.windows_events", "nothing_there")}


@pytest.mark.parametrize("changes", [{"pool": {"min": 1, "languages": ("python",)}, "languages": {"python": PRELOAD}}])
async def test_a_warm_interpreter_has_imported_modules_and_code_sees_nothing_of_that(profile: Profile) -> None:
    async with serving(profile) as service:
        await service.pool_until(lambda now: now.warm == 1 and not now.warming and bool(now.keys[0].preload))
        preload = service.pool().keys[0].preload
        assert preload is not None
        assert (preload.modules, preload.skipped) == (
            ("decimal",),
            {
                "this": "it prints when it is imported",
                "asyncio.windows_events": "importing it fails: ImportError: win32 only",
                "nothing_there": "it is not installed",
            },
        )
        assert 0 < preload.memory < 100 << 20
        names = "[name for name in globals() if name[0] != '_']"
        threads = "len(os.listdir('/proc/self/task'))"
        code = f"print({names})\nimport gc, os, sys\ngc.get_freeze_count() > 1000, {threads}, 'decimal' in sys.modules"
        run = await execute(service, f"{code}, 'this' in sys.modules, 'asyncio' in sys.modules")
        assert (run.stdout.text, run.stderr.text, run.notes) == ("[]\n", "", ())
        assert run.result == "(True, 1, True, False, False)"
        assert service.pool().hits == 1


@pytest.mark.parametrize("changes", [BASH])
async def test_files_that_are_copied_in_before_the_first_run_are_found_by_it(profile: Profile) -> None:
    async with serving(profile) as service:
        await service.pool_until(one_warm)
        session = open_session(service, "bash")
        await service.files.copy_in(session, "given", b"text")
        assert (await execute(service, "cat given", language="bash", session_id=session)).stdout.text == "text"
        assert service.pool().hits == 1
