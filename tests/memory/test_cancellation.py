"""A call that is cancelled at any moment: its session goes on, and the call leaves nothing behind."""

import contextlib

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import open_session
from tests.effort import tries
from tests.memory.backend import MemoryBackend

from .conftest import run

pytestmark = pytest.mark.anyio

STEPS = 80
"""Turns of the event loop; even the longest run here needs fewer until it only waits for time to pass."""
MOMENTS = range(0, STEPS, max(1, STEPS // tries(STEPS)))
"""After how many turns a call is cancelled: after each number of them in `make test`."""
ENDED = 60.0
"""Seconds, on a clock that jumps, after which everything that a call started has ended."""


async def cancelled_run(service: Service, steps: int, code: str, session_id: str = "") -> None:
    async def call() -> None:
        with contextlib.suppress(SandboxError):
            await run(service, code, session_id=session_id, timeout=5)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "code", ["set x 1", "print x\nsleep 1000", "deaf\nsleep 1000", "exit 0", "die", "hide", "outgrow", "flood"]
)
async def test_a_session_goes_on_after_a_cancelled_call(service: Service, engine: MemoryBackend, code: str) -> None:
    engine.delay = 0.01
    session = open_session(service, "script")
    for steps in MOMENTS:
        await cancelled_run(service, steps, code, session)
        again = await run(service, "set y 1\nget y", session_id=session)
        assert (again.status, again.result) == ("ok", "1"), (steps, again)
        assert [(info.id, info.running) for info in service.sessions.list()] == [(session, False)], steps
    await anyio.sleep(ENDED)
    assert len(engine.live) == 1


@pytest.mark.parametrize("code", ["set x 1", "print x\nsleep 1000", "deaf\nsleep 1000", "die"])
@pytest.mark.parametrize("changes", [{"sessions": {"max": 6, "idle_timeout": 30.0}}])
async def test_a_session_that_has_run_nothing_is_closed(service: Service, engine: MemoryBackend, code: str) -> None:
    engine.delay = 0.01
    for steps in MOMENTS:
        await cancelled_run(service, steps, code)
        assert not any(info.running for info in service.sessions.list()), steps
        assert all(info.runs for info in service.sessions.list()), steps
    await anyio.sleep(ENDED)
    assert service.sessions.list() == ()
    assert not engine.live
