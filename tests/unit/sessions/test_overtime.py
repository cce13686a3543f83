"""Only sandboxes that go on working after the deadline of their run are ended; their processor time shows it."""

from collections.abc import Sequence
from typing import cast

import anyio
import pytest
from anyio.abc import TaskGroup

from llm_sandbox_mcp.aio.tasks import open_tasks
from llm_sandbox_mcp.backends.base import Sandbox, Usage
from llm_sandbox_mcp.sessions import overtime
from llm_sandbox_mcp.sessions.overtime import Overtime
from tests.memory.clock import BACKEND

pytestmark = pytest.mark.anyio

STEP = 0.02


class Counted:
    """A sandbox as far as it is checked: at each check it has used the next number of seconds more."""

    def __init__(self, uses: Sequence[float | None]) -> None:
        self._uses = iter(uses)
        self._cpu = 100.0
        self.ends = 0
        self.checks = 0
        self.first = 0.0
        self.seen = anyio.Event()
        self.ended = anyio.Event()

    @property
    def sandbox(self) -> Sandbox:
        return cast(Sandbox, self)

    async def usage(self) -> Usage:
        self.checks += 1
        self.first = self.first or anyio.current_time()
        more = next(self._uses, -1.0)
        if more == -1.0:
            self.seen.set()
            return Usage(0, 0, self._cpu)
        if more is None:
            self.seen.set()
            return Usage(0, 0, None)
        self._cpu += more
        return Usage(0, 0, self._cpu)

    def end(self) -> None:
        self.ends += 1
        self.ended.set()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the first step; the rule is the same for any. `hostile/test_forged_frames.py` waits for the real one."""
    monkeypatch.setattr(overtime, "_FIRST", STEP)


def watch(tasks: TaskGroup, *found: Counted, after: float = 0.0) -> Overtime:
    watching = Overtime(tasks)
    for one in found:
        watching.watch(one.sandbox, anyio.current_time() + after, one.end)
    return watching


async def until(event: anyio.Event) -> None:
    with anyio.fail_after(10):
        await event.wait()


async def test_a_sandbox_that_goes_on_working_is_ended_and_no_longer_checked() -> None:
    works = Counted([5.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, works)
        await until(works.ended)
        tasks.cancel_scope.cancel()
    # Processor time from before the deadline does not count.
    assert (works.checks, works.ends) == (2, 1)


async def test_a_waiting_sandbox_is_checked_less_and_less_often_and_stays() -> None:
    waits = Counted([5.0, 0.15, 0.01, 0.0, 0.0])
    async with open_tasks() as tasks:
        watch(tasks, waits)
        began = anyio.current_time()
        await until(waits.seen)
        tasks.cancel_scope.cancel()
    assert waits.ends == 0
    # The checks come after 1, 2, 4, 8 and 16 steps.
    assert anyio.current_time() - began >= 16 * STEP


async def test_a_sandbox_that_starts_working_late_is_ended_too() -> None:
    works = Counted([0.0, 0.0, 0.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, works)
        await until(works.ended)
        tasks.cancel_scope.cancel()
    assert works.checks == 4


@pytest.mark.parametrize(("each", "ends"), [(0.11, 0), (0.3, 1)])
@pytest.mark.parametrize("anyio_backend", [BACKEND], ids=["on a clock that jumps"])
async def test_waiting_may_use_a_tenth_of_a_processor_for_as_long_as_it_takes(
    each: float, ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overtime, "_FIRST", 0.5)
    # The checks come after 0, 0.5, 1, 2 and 4 seconds; the last one finds `each` for every second since the deadline.
    waits = Counted([5.0, 0.0, 0.0, 0.0, 4 * each])
    async with open_tasks() as tasks:
        watch(tasks, waits)
        await until(waits.ended if ends else waits.seen)
        tasks.cancel_scope.cancel()
    assert waits.ends == ends


async def test_no_sandbox_is_checked_before_its_deadline_and_an_earlier_deadline_comes_first() -> None:
    late, early = Counted([]), Counted([])
    async with open_tasks() as tasks:
        watching = watch(tasks, late, after=1000)
        await anyio.wait_all_tasks_blocked()
        watching.watch(early.sandbox, anyio.current_time() + STEP, early.end)
        await until(early.seen)
        tasks.cancel_scope.cancel()
    assert late.checks == 0


async def test_a_forgotten_sandbox_is_not_ended() -> None:
    gone, other = Counted([5.0, 1.0]), Counted([0.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, gone, other).forget(gone.sandbox)
        await until(other.ended)
        tasks.cancel_scope.cancel()
    assert (gone.checks, gone.ends) == (0, 0)


async def test_a_sandbox_that_is_watched_again_has_the_new_deadline() -> None:
    again, other = Counted([5.0, 1.0]), Counted([0.0, 1.0])
    async with open_tasks() as tasks:
        watching = watch(tasks, again, other)
        watching.watch(again.sandbox, anyio.current_time() + 1000, again.end)
        await until(other.ended)
        tasks.cancel_scope.cancel()
    assert again.checks == 0


async def test_a_check_that_fails_is_logged_and_ends_neither_the_others_nor_later_ones(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overtime, "_SELDOM", STEP)

    class Failing(Counted):
        async def usage(self) -> Usage:
            if not self.checks:
                self.checks += 1
                raise RuntimeError("a mistake")
            return await super().usage()

    failing, other = Failing([0.0, 1.0]), Counted([0.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, failing, other)
        await until(other.ended)
        await until(failing.ended)
        tasks.cancel_scope.cancel()
    (record,) = caplog.records
    assert record.exc_info and str(record.exc_info[1]) == "a mistake"


async def test_without_counters_a_sandbox_is_not_watched() -> None:
    uncounted, other = Counted([None]), Counted([0.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, uncounted, other)
        await until(other.ended)
        tasks.cancel_scope.cancel()
    assert (uncounted.checks, uncounted.ends) == (1, 0)
