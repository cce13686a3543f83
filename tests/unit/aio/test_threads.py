"""Calls that block, in threads that nobody has to wait for."""

import threading

import anyio
import anyio.from_thread
import pytest
from anyio.lowlevel import current_token

from llm_sandbox_mcp.aio.threads import in_thread


@pytest.fixture
def limiter(anyio_backend: str) -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(1)


@pytest.mark.anyio
async def test_a_call_returns_or_raises_in_the_task_that_waits_for_it(limiter: anyio.CapacityLimiter) -> None:
    assert await in_thread(threading.current_thread, limiter) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0, limiter)
    assert limiter.borrowed_tokens == 0


@pytest.mark.anyio
async def test_a_call_that_nobody_waits_for_counts_until_it_is_done(limiter: anyio.CapacityLimiter) -> None:
    begun, go_on, left = anyio.Event(), threading.Event(), list[anyio.Event]()

    def call() -> None:
        anyio.from_thread.run_sync(begun.set, token=token)
        go_on.wait()

    token = current_token()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_thread, call, limiter, left.append)
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert (limiter.borrowed_tokens, [done.is_set() for done in left]) == (1, [False])
        go_on.set()
        await left[0].wait()
        assert limiter.borrowed_tokens == 0
        assert await in_thread(lambda: 6, limiter) == 6


def test_a_call_may_end_after_the_loop_of_its_task() -> None:
    go_on, threads = threading.Event(), list[threading.Thread]()

    async def use() -> None:
        begun, token = anyio.Event(), current_token()

        def call() -> None:
            threads.append(threading.current_thread())
            anyio.from_thread.run_sync(begun.set, token=token)
            go_on.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_thread, call, anyio.CapacityLimiter(1))
            await begun.wait()
            tasks.cancel_scope.cancel()

    anyio.run(use)
    go_on.set()
    threads[0].join(10)
    assert not threads[0].is_alive()
