"""Sandboxes that go on working after the time of their run are found by what they use of the processor, and no others."""

from collections.abc import Sequence
from typing import cast

import anyio
import pytest
from anyio.abc import TaskGroup

from llm_sandbox_mcp.backends.base import Sandbox, Usage
from llm_sandbox_mcp.sessions import overtime
from llm_sandbox_mcp.sessions.overtime import Overtime
from llm_sandbox_mcp.tasks import open_tasks

pytestmark = pytest.mark.anyio

LOOK = 0.02


class Counted:
    """Of a sandbox what is looked at: at each look it has used so much more."""

    def __init__(self, uses: Sequence[float | None]) -> None:
        self._uses = iter(uses)
        self._cpu = 100.0
        self.ends = 0
        self.looked = 0
        self.first = 0.0
        self.seen = anyio.Event()
        self.ended = anyio.Event()

    @property
    def sandbox(self) -> Sandbox:
        return cast(Sandbox, self)

    async def usage(self) -> Usage:
        self.looked += 1
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
    """The rule is the same for any step; the real one is waited for in `hostile/test_forged_frames.py`."""
    monkeypatch.setattr(overtime, "_FIRST", LOOK)


def watch(tasks: TaskGroup, *found: Counted, after: float = 0.0) -> Overtime:
    watching = Overtime(tasks)
    for one in found:
        watching.watch(one.sandbox, anyio.current_time() + after, one.end)
    return watching


async def until(event: anyio.Event) -> None:
    with anyio.fail_after(10):
        await event.wait()


async def test_what_goes_on_is_ended_and_no_more_looked_at() -> None:
    works = Counted([5.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, works)
        await until(works.ended)
        tasks.cancel_scope.cancel()
    # What was used before the deadline does not count.
    assert (works.looked, works.ends) == (2, 1)


async def test_what_waits_is_looked_at_ever_more_seldom_and_stays() -> None:
    waits = Counted([5.0, 0.15, 0.01, 0.0, 0.0])
    async with open_tasks() as tasks:
        watch(tasks, waits)
        began = anyio.current_time()
        await until(waits.seen)
        tasks.cancel_scope.cancel()
    assert waits.ends == 0
    # After one step, two, four, eight and sixteen.
    assert anyio.current_time() - began >= 16 * LOOK


async def test_what_begins_to_work_late_is_ended_too() -> None:
    works = Counted([0.0, 0.0, 0.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, works)
        await until(works.ended)
        tasks.cancel_scope.cancel()
    assert works.looked == 4


async def test_nothing_is_looked_at_before_the_deadline_and_an_earlier_one_comes_first() -> None:
    late, early = Counted([]), Counted([])
    async with open_tasks() as tasks:
        watching = watch(tasks, late, after=1000)
        await anyio.wait_all_tasks_blocked()
        watching.watch(early.sandbox, anyio.current_time() + LOOK, early.end)
        await until(early.seen)
        tasks.cancel_scope.cancel()
    assert late.looked == 0


async def test_what_is_forgotten_is_not_ended() -> None:
    gone, other = Counted([5.0, 1.0]), Counted([0.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, gone, other).forget(gone.sandbox)
        await until(other.ended)
        tasks.cancel_scope.cancel()
    assert (gone.looked, gone.ends) == (0, 0)


async def test_what_is_watched_anew_has_its_new_deadline() -> None:
    again, other = Counted([5.0, 1.0]), Counted([0.0, 1.0])
    async with open_tasks() as tasks:
        watching = watch(tasks, again, other)
        watching.watch(again.sandbox, anyio.current_time() + 1000, again.end)
        await until(other.ended)
        tasks.cancel_scope.cancel()
    assert again.looked == 0


async def test_where_nobody_counts_nothing_is_watched() -> None:
    uncounted, other = Counted([None]), Counted([0.0, 1.0])
    async with open_tasks() as tasks:
        watch(tasks, uncounted, other)
        await until(other.ended)
        tasks.cancel_scope.cancel()
    assert (uncounted.looked, uncounted.ends) == (1, 0)
