"""Calls into the event loop of the process, while it starts and ends."""

import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from llm_sandbox_mcp.compat.llm_sandbox.portal import Portal

THREADS = 6
ENDS = 30


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal()
    yield made
    made.close()


async def same(value: int) -> int:
    await anyio.lowlevel.checkpoint()
    return value


async def fail() -> None:
    raise LookupError("inside")


def test_results_and_errors_return_to_the_thread_that_called(portal: Portal) -> None:
    def call(number: int) -> int:
        with pytest.raises(LookupError, match="inside"):
            portal.call(fail)
        return portal.call(same, number)

    with ThreadPoolExecutor(THREADS) as threads:
        assert [*threads.map(call, range(200))] == [*range(200)]


def test_a_call_while_the_loop_ends_returns_or_raises(portal: Portal) -> None:
    over = threading.Event()

    def call() -> int:
        answered = 0
        while not over.is_set():
            with suppress(CancelledError, RuntimeError):
                answered += portal.call(same, 1)
        return answered

    with ThreadPoolExecutor(THREADS) as threads:
        calling = [threads.submit(call) for _ in range(THREADS)]
        for _ in range(ENDS):
            portal.call(same, 1)
            portal.close()
        over.set()
        assert sum(each.result(30) for each in calling)


def test_a_call_that_waits_when_the_loop_ends_is_cancelled_and_cleans_up(portal: Portal) -> None:
    begun, left = threading.Event(), threading.Event()

    async def wait() -> None:
        try:
            begun.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                left.set()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(portal.call, wait)
        begun.wait(30)
        portal.close()
        assert left.is_set()
        assert isinstance(waiting.exception(30), CancelledError)


def test_errors_of_entering_and_leaving_a_context_manager_are_raised(portal: Portal) -> None:
    @asynccontextmanager
    async def broken(*, entering: bool) -> AsyncIterator[int]:
        if entering:
            raise LookupError("entering")
        yield 1
        raise LookupError("leaving")

    with pytest.raises(LookupError, match="entering"):
        portal.enter(broken(entering=True))
    held = portal.enter(broken(entering=False))
    assert held.value == 1
    with pytest.raises(LookupError, match="leaving"):
        held.leave()


def test_a_context_manager_that_is_open_when_the_loop_ends_is_left(portal: Portal) -> None:
    left = threading.Event()

    @asynccontextmanager
    async def noted() -> AsyncIterator[None]:
        try:
            yield
        finally:
            left.set()

    held = portal.enter(noted())
    portal.close()
    assert left.is_set()
    assert not held.here
    held.let_go()
    held.leave()
