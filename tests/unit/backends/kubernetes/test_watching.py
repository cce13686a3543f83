"""How a watch handles a cluster that goes away and comes back, a cluster that refuses, and unexpected pods."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.backends.kubernetes import watching
from llm_sandbox_mcp.backends.kubernetes.api import Api, Refused
from llm_sandbox_mcp.backends.kubernetes.watching import Watch, Watched
from llm_sandbox_mcp.base.errors import EngineUnavailable, Evicted, ImageFailed, SandboxLost, StartFailed, Unschedulable
from llm_sandbox_mcp.base.messages import Problem

pytestmark = pytest.mark.anyio

AWAY = EngineUnavailable("kubernetes does not answer", "check that it runs")
BUSY = Refused(503, "ServiceUnavailable", "the server is busy")
OLD = Refused(410, "Expired", "too old resource version")
DENIED = Refused(403, "Forbidden", "pods is forbidden: User cannot watch resource")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_PAUSE", 0.0)
    monkeypatch.setattr(watching, "REPORT_TIME", 0.05)


def pod(name: str = "one", state: str = "running", **status: Any) -> dict[str, Any]:
    status = {"containerStatuses": [{"name": "sandbox", "state": {state: {}}}], **status}
    metadata = {"name": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"containers": [{"name": "sandbox", "image": "image"}]}, "status": status}


PATIENT = (20.0, 20.0)
"""Seconds for a start, and for a node; never reached."""
NO_NODE = pod(
    "one", "waiting", conditions=[{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/1 nodes"}]
)
EVICTED = pod(phase="Failed", reason="Evicted", message="low on memory")


class FakeApi:
    """Answers instead of a cluster: with the given results of lists and of watches, in order.

    The last list is repeated for every further call; after the last watch no more events come.
    """

    namespace = "sandboxes"

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches

    async def call(self, method: str, path: str, query: object) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(answer, Exception):
            raise answer.with_traceback(None)
        return {"metadata": {"resourceVersion": "1"}, "items": answer}

    @asynccontextmanager
    async def watch(self, path: str, query: object) -> AsyncIterator[AsyncIterator[Any]]:
        await anyio.lowlevel.checkpoint()
        if not self.watches:
            await anyio.sleep_forever()
        answer = self.watches.pop(0)

        async def events() -> AsyncIterator[Any]:
            for kind, seen in answer:
                yield {"type": kind, "object": seen}
            if not self.watches:
                await anyio.sleep_forever()

        if isinstance(answer, Exception):
            raise answer
        yield events()


@asynccontextmanager
async def watched(
    lists: list[Any], watches: list[Any], on_stranger: Callable[[str], None] = lambda _: None
) -> AsyncIterator[Watched]:
    """The pod `one`, watched in a cluster that gives these answers."""
    watch = Watch(cast(Api, FakeApi(lists, watches)), ("labelSelector", "a=b"), on_stranger)
    one = watch.expect("one")
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
            yield one
            tasks.cancel_scope.cancel()


async def soon() -> float:
    """A deadline that is never reached."""
    return anyio.current_time() + 20


async def test_a_pod_that_ends_after_the_cluster_was_away_is_reported_with_its_reason() -> None:
    again = [("MODIFIED", EVICTED)]
    async with watched([BUSY, AWAY, [pod()]], [AWAY, [("MODIFIED", pod())], again]) as one:
        await one.over.wait()
        assert one.unheard is None
        found = await one.reported_failure(await soon())
        assert found
        assert type(found.later()) is Evicted


async def test_a_pod_that_disappeared_between_two_watches_counts_as_deleted() -> None:
    async with watched([[]], [[("ADDED", pod())], AWAY]) as one:
        await one.over.wait()
        assert one.failure
        assert "was deleted" in one.failure.problem.cause


async def test_a_watch_that_is_too_old_does_not_mean_that_the_cluster_is_away() -> None:
    heard: list[Problem | None] = []
    async with watched([[pod()]], [[("ADDED", pod())], OLD, [("MODIFIED", EVICTED)]]) as one:
        one.hear = lambda unheard=None: heard.append(unheard)  # type: ignore[method-assign]
        await one.over.wait()
    assert heard == [None]


@pytest.mark.parametrize("ends", [AWAY, BUSY], ids=["away", "busy"])
async def test_a_start_fails_soon_after_the_cluster_went_away(ends: Exception) -> None:
    async with watched([ends], [ends]) as one:
        with pytest.raises(EngineUnavailable, match=r"; (check|see)"):
            await one.started(*PATIENT)


async def test_a_start_goes_on_if_the_cluster_is_back_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "REPORT_TIME", 20.0)
    async with watched([BUSY, [pod(state="waiting")]], [AWAY, [("MODIFIED", pod())]]) as one:
        await one.started(*PATIENT)


async def test_a_start_fails_if_watching_pods_is_forbidden() -> None:
    async with watched([DENIED], [DENIED]) as one:
        with pytest.raises(EngineUnavailable, match=r"does not allow this server to watch pods: .*; grant"):
            await one.started(*PATIENT)


async def test_a_start_waits_for_a_node_and_says_so() -> None:
    watch = Watch(cast(Api, FakeApi([[]], [[("ADDED", NO_NODE)]])), ("labelSelector", "a=b"))
    one, other = watch.expect("one"), watch.expect("other")
    lines: list[str] = []
    told = anyio.Event()

    async def on_progress(line: str) -> None:
        lines.append(line)
        told.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.tell, on_progress)
            tasks.start_soon(watch.run)
            await told.wait()
            with pytest.raises(Unschedulable, match="no node takes pod one: Unschedulable, 0/1 nodes; add nodes"):
                await one.started(20, 0.01)
            # Its time to start does not pass while no node takes it.
            with pytest.raises(Unschedulable):
                await one.started(0, 0.05)
            one.take(pod(state="waiting"))
            with pytest.raises(TimeoutError):
                await one.started(0.01, 20)
            with pytest.raises(TimeoutError):
                await other.started(0.01, 20)
            one.take(pod())
            await one.started(*PATIENT)
            tasks.cancel_scope.cancel()
    assert lines == ["waiting for a node: no node takes pod one: Unschedulable, 0/1 nodes"]


async def test_a_running_pod_goes_on_if_the_watch_is_forbidden() -> None:
    async with watched([DENIED, [pod()]], [[("ADDED", pod())], DENIED, []]) as one:
        await one.started(*PATIENT)
        assert not one.over.is_set()


async def test_a_pod_that_is_lost_before_it_was_used_is_a_failed_start() -> None:
    lost = SandboxLost("the sandbox is gone", "open a new session")
    one = Watched("one")
    assert type(await one.never_used(lost)) is StartFailed
    one.hear(Problem("it does not answer", "see to it"))
    assert type(await one.never_used(lost)) is EngineUnavailable
    one.take(
        {
            **pod(),
            "status": {"containerStatuses": [{"name": "sandbox", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
        }
    )
    assert type(await one.never_used(lost)) is ImageFailed


async def test_unexpected_pods_are_reported_each_time_the_watch_begins() -> None:
    strangers: list[str] = []
    async with watched(
        [[pod(), pod("two")]], [[("ADDED", pod("three"))], AWAY, [("MODIFIED", EVICTED)]], strangers.append
    ) as one:
        await one.over.wait()
    assert strangers == ["three", "two"]
