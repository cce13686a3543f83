"""What the end of a pod means for its sandbox: before the agent answers, while it is idle, and while it is removed."""

from collections.abc import Sequence
from typing import Any, cast

import anyio
import pytest
from anyio.abc import ByteSendStream

from llm_sandbox_mcp.backends.containers.agent import Packed
from llm_sandbox_mcp.backends.containers.container import Output, Streams
from llm_sandbox_mcp.backends.kubernetes import sandbox as pod_sandbox
from llm_sandbox_mcp.backends.kubernetes.failures import Failure
from llm_sandbox_mcp.backends.kubernetes.pod import Pod
from llm_sandbox_mcp.backends.kubernetes.sandbox import PodSandbox
from llm_sandbox_mcp.backends.kubernetes.watching import Watched
from llm_sandbox_mcp.base.errors import NodeLost, OutOfMemory, StartFailed
from llm_sandbox_mcp.base.messages import Problem
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

OOM = Failure("OOMKilled", Problem("pod one ended: OOMKilled", "raise limits.memory"))
SILENT = Failure("NodeLost", Problem("pod one was lost: NodeLost, node-1 does not answer", "check the node"))
EXITED = Failure("Error", Problem("pod one ended: Error", "open a new session"))


NO_HANDLERS = Packed(b"", "")


class Heard(ByteSendStream):
    """The agent's input; the agent ends when it is told to."""

    def __init__(self, agent: Streams) -> None:
        self._agent = agent
        self.lines: list[bytes] = []

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.lines.append(item)
        if item == b"end\n":
            self._agent.close()

    async def aclose(self) -> None:
        pass


class Agent(Streams):
    """An agent that has already printed its output; nothing more comes until it ends."""

    def __init__(self, printed: bytes) -> None:
        self.stdin = self.heard = Heard(self)
        self.stdout, self.stderr = Output(self), Output(self)
        self.stdout.buffer += printed
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
    """A pod that records the calls to it."""

    id, engine = "one", "kubernetes"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def remove_soon(self) -> None:
        self.calls.append("remove soon")

    async def remove(self) -> None:
        self.calls.append("remove")


def made(printed: bytes = b"ready\n", prefix: Sequence[str] = ()) -> tuple[PodSandbox, Agent, Watched, Recorded]:
    agent, watched, pod = Agent(printed), Watched("one"), Recorded()
    return PodSandbox(cast(Pod, pod), agent, POLICY, "image", prefix, watched), agent, watched, pod


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pod_sandbox, "REPORT_TIME", 20.0)
    monkeypatch.setattr(pod_sandbox, "_LAST", 20.0)


async def test_a_pod_that_the_cluster_ends_before_it_is_ready_is_a_failed_start_with_the_reason() -> None:
    sandbox, agent, watched, pod = made(printed=b"")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(expect_no_start, sandbox, "NodeLost, node-1 does not answer")
        await anyio.wait_all_tasks_blocked()
        agent.close()
        await anyio.wait_all_tasks_blocked()
        watched.fail(SILENT)
    assert pod.calls == ["remove soon"]


async def test_if_the_agent_ends_by_itself_the_error_lists_what_an_image_needs() -> None:
    sandbox, agent, watched, _ = made(printed=b"")
    agent.close()
    watched.fail(EXITED)
    await expect_no_start(sandbox, "use an image with sh, tar, gzip")


async def test_an_image_with_a_missing_program_is_an_error_without_waiting_for_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_sandbox, "REPORT_TIME", float("inf"))
    monkeypatch.setattr(pod_sandbox, "_REASON", float("inf"))
    sandbox, agent, _, pod = made(printed=b"missing tar\n")
    agent.close()
    with anyio.fail_after(20):
        await expect_no_start(sandbox, "has no tar")
        await sandbox.kill()
    assert pod.calls == ["remove"]


async def expect_no_start(sandbox: PodSandbox, expected: str) -> None:
    with pytest.raises(StartFailed, match=expected):
        await sandbox.begin(NO_HANDLERS)


async def test_a_pod_that_ended_before_it_was_attached_to_is_removed() -> None:
    agent, watched, pod = Agent(b"ready\n"), Watched("one"), Recorded()
    watched.fail(OOM)
    sandbox = PodSandbox(cast(Pod, pod), agent, POLICY, "image", (), watched)
    assert not sandbox.alive
    assert agent.ended.is_set()
    assert pod.calls == ["remove soon"]


async def test_a_pod_that_ended_by_itself_is_removed_only_after_the_reason_is_known() -> None:
    sandbox, agent, watched, pod = made()
    await sandbox.begin(NO_HANDLERS)
    agent.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.kill)
        await anyio.wait_all_tasks_blocked()
        assert pod.calls == []
        watched.fail(OOM)
    assert type(await sandbox.loss()) is OutOfMemory
    assert pod.calls == ["remove soon", "remove"]


async def test_a_pod_that_the_server_kills_is_removed_at_once_and_only_once() -> None:
    sandbox, _, watched, pod = made()
    await sandbox.begin(NO_HANDLERS)
    await sandbox.kill()
    watched.fail(Failure("Deleted", Problem("pod one was deleted", "open a new session")))
    assert pod.calls == ["remove"]


async def test_the_agent_of_a_pod_that_is_removed_ends_first_without_its_node() -> None:
    sandbox, agent, _, pod = made()
    await sandbox.begin(NO_HANDLERS)
    ended: list[bool] = []

    async def remove() -> None:
        ended.append(agent.ended.is_set())

    pod.remove = remove  # type: ignore[method-assign]
    await sandbox.kill()
    assert (agent.heard.lines[-1], ended) == (b"end\n", [True])


async def test_an_agent_that_does_not_end_does_not_keep_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_sandbox, "_LAST", 0.0)
    sandbox, agent, _, pod = made()
    await sandbox.begin(NO_HANDLERS)
    monkeypatch.setattr(agent.heard, "send", _never)
    await sandbox.kill()
    assert pod.calls == ["remove"]


async def _never(item: bytes) -> None:
    await anyio.sleep_forever()


async def test_handlers_are_sent_only_if_the_image_does_not_contain_them() -> None:
    packed = Packed(b"archive", "digest")
    sandbox, agent, _, _ = made(printed=b"ready\n")
    await sandbox.begin(packed)
    assert agent.heard.lines == [b"7 digest\n"]
    sandbox, agent, _, _ = made(printed=b"send\nready\n")
    await sandbox.begin(packed)
    assert agent.heard.lines == [b"7 digest\n", b"archive"]


async def test_a_check_of_a_live_pod_does_not_shorten_the_wait_for_the_reason_of_its_end() -> None:
    sandbox, agent, watched, _ = made()
    await sandbox.begin(NO_HANDLERS)
    assert await sandbox.loss() is None
    agent.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(expect_lost_node, sandbox)
        await anyio.wait_all_tasks_blocked()
        watched.fail(SILENT)


async def expect_lost_node(sandbox: PodSandbox) -> None:
    assert type(await sandbox.loss()) is NodeLost


async def test_a_pod_that_was_killed_at_its_memory_limit_counts_as_out_of_memory() -> None:
    sandbox, agent, watched, _ = made()
    await sandbox.begin(NO_HANDLERS)
    agent.close()
    watched.fail(OOM)
    assert (await sandbox.usage()).oom_kills == 1


async def test_a_report_may_come_later_than_a_removal_would_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_sandbox, "REPORT_TIME", 0.0)
    sandbox, agent, watched, _ = made()
    await sandbox.begin(NO_HANDLERS)
    agent.close()
    kills: list[int] = []

    async def count() -> None:
        kills.append((await sandbox.usage()).oom_kills)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await anyio.wait_all_tasks_blocked()
        assert kills == []
        watched.fail(OOM)
    assert kills == [1]


async def test_the_end_of_an_agent_that_joined_a_pod_is_not_waited_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_sandbox, "REPORT_TIME", 0.0)
    monkeypatch.setattr(pod_sandbox, "_REASON", float("inf"))
    agent = Agent(b"ready\n")
    sandbox = PodSandbox(cast(Pod, Recorded()), agent, POLICY, "pod one", (), Watched("one"), joined=True)
    await sandbox.begin(NO_HANDLERS)
    agent.close()
    with anyio.fail_after(20):
        assert await sandbox.loss() is None
