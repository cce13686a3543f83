"""What a pod's end means for its sandbox, whenever it comes: before the agent answers, while idle, while it is removed."""

from collections.abc import Sequence
from typing import Any, cast

import anyio
import pytest
from anyio.abc import ByteSendStream

from llm_sandbox_mcp.backends.containers.container import Output, Streams
from llm_sandbox_mcp.backends.kubernetes import sandbox as pod_sandbox
from llm_sandbox_mcp.backends.kubernetes.failures import Failure
from llm_sandbox_mcp.backends.kubernetes.pod import Pod
from llm_sandbox_mcp.backends.kubernetes.sandbox import PodSandbox
from llm_sandbox_mcp.backends.kubernetes.watching import Watched
from llm_sandbox_mcp.errors import NodeLost, OutOfMemory, StartFailed
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

OOM = Failure("OOMKilled", "pod one ended: OOMKilled; raise limits.memory")
SILENT = Failure("NodeLost", "pod one was lost: NodeLost, node-1 does not answer; check the node")
EXITED = Failure("Error", "pod one ended: Error; open a new session")


class Discarding(ByteSendStream):
    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        pass


class Agent(Streams):
    """One that has said what it says; once it ends, nothing more comes."""

    def __init__(self, said: bytes) -> None:
        self.stdin = Discarding()
        self.stdout, self.stderr = Output(self), Output(self)
        self.stdout.buffer += said
        self.ended = anyio.Event()

    async def take_in(self) -> None:
        await self.ended.wait()

    def look(self) -> bool:
        return not self.ended.is_set()

    async def exit_code(self) -> int | None:
        return None

    def close(self) -> None:
        self.ended.set()


class Recorded:
    """A pod that notes what is asked of it."""

    id, engine = "one", "kubernetes"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def remove_soon(self) -> None:
        self.asked.append("remove soon")

    async def remove(self) -> None:
        self.asked.append("remove")


def made(said: bytes = b"ready\n", prefix: Sequence[str] = ()) -> tuple[PodSandbox, Agent, Watched, Recorded]:
    agent, watched, pod = Agent(said), Watched("one"), Recorded()
    return PodSandbox(cast(Pod, pod), agent, POLICY, "image", prefix, watched), agent, watched, pod


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pod_sandbox, "TOLD", 20.0)


async def test_one_that_the_cluster_ends_before_it_is_ready_says_why() -> None:
    sandbox, agent, watched, pod = made(said=b"")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(expect_no_start, sandbox, "NodeLost, node-1 does not answer")
        await anyio.wait_all_tasks_blocked()
        agent.close()
        await anyio.wait_all_tasks_blocked()
        watched.fail(SILENT)
    assert pod.asked == ["remove soon"]


async def test_one_whose_own_program_ends_says_what_an_image_needs() -> None:
    sandbox, agent, watched, _ = made(said=b"")
    agent.close()
    watched.fail(EXITED)
    await expect_no_start(sandbox, "use an image with sh, tar, gzip")


async def test_one_that_lacks_a_program_waits_for_nothing_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_sandbox, "TOLD", float("inf"))
    sandbox, agent, _, pod = made(said=b"missing tar\n")
    agent.close()
    with anyio.fail_after(20):
        await expect_no_start(sandbox, "has no tar")
        await sandbox.kill()
    assert pod.asked == ["remove"]


async def expect_no_start(sandbox: PodSandbox, says: str) -> None:
    with pytest.raises(StartFailed, match=says):
        await sandbox.begin(b"")


async def test_one_that_is_over_by_the_time_that_it_is_attached_to_is_let_go() -> None:
    agent, watched, pod = Agent(b"ready\n"), Watched("one"), Recorded()
    watched.fail(OOM)
    sandbox = PodSandbox(cast(Pod, pod), agent, POLICY, "image", (), watched)
    assert not sandbox.alive
    assert agent.ended.is_set()
    assert pod.asked == ["remove soon"]


async def test_an_end_of_its_own_is_told_before_it_is_removed() -> None:
    sandbox, agent, watched, pod = made()
    await sandbox.begin(b"")
    agent.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.kill)
        await anyio.wait_all_tasks_blocked()
        assert pod.asked == []
        watched.fail(OOM)
    assert type(await sandbox.loss()) is OutOfMemory
    assert pod.asked == ["remove soon", "remove"]


async def test_one_that_is_removed_at_will_is_removed_at_once_and_only_so() -> None:
    sandbox, _, watched, pod = made()
    await sandbox.begin(b"")
    await sandbox.kill()
    watched.fail(Failure("Deleted", "pod one was deleted; open a new session"))
    assert pod.asked == ["remove"]


async def test_what_an_attempt_on_a_living_one_comes_to_takes_no_time_from_its_end() -> None:
    sandbox, agent, watched, _ = made()
    await sandbox.begin(b"")
    assert await sandbox.loss() is None
    agent.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lost_to_its_node, sandbox)
        await anyio.wait_all_tasks_blocked()
        watched.fail(SILENT)


async def lost_to_its_node(sandbox: PodSandbox) -> None:
    assert type(await sandbox.loss()) is NodeLost


async def test_one_that_was_killed_at_its_memory_limit_counts_as_such() -> None:
    sandbox, agent, watched, _ = made()
    await sandbox.begin(b"")
    agent.close()
    watched.fail(OOM)
    assert (await sandbox.usage()).oom_kills == 1
