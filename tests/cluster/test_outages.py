"""A cluster or a node is away for a while: that is soon reported by name, and everything works again afterwards."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import TaskGroup, TaskStatus

from llm_sandbox_mcp.base.errors import EngineSilent, EngineUnavailable, NodeLost, SandboxLost
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from tests.containers.engines import until
from tests.deadlines import within
from tests.engines import kubeconfig, lack_own_cluster

from .conftest import Serving
from .forwarding import forwarded

pytestmark = pytest.mark.anyio

SOON = 50.0
"""Seconds until an error is reported: five are promised, ten times that allows for a busy machine."""
MISSED = 400.0
"""Seconds until a cluster notices that a node is lost; it waits at least forty."""


class Way:
    """The only connection to the cluster, which can be cut and opened again, or held, so that it passes no bytes."""

    def __init__(self, tasks: TaskGroup, host: str, port: int) -> None:
        self._tasks = tasks
        self._to = (host, port)
        self._scope = anyio.CancelScope()
        self._passing = anyio.Event()
        self._passing.set()
        self.port = 0

    async def open(self) -> None:
        self._scope = anyio.CancelScope()
        self.port = await self._tasks.start(self._carry)

    def hold(self) -> None:
        self._passing = anyio.Event()

    def let_go(self) -> None:
        self._passing.set()

    def cut(self) -> None:
        self._scope.cancel()

    async def _carry(self, *, task_status: TaskStatus[int]) -> None:
        with self._scope:
            async with forwarded("127.0.0.1", *self._to, wait=self._pass, local_port=self.port) as port:
                task_status.started(port)
                await anyio.sleep_forever()

    async def _pass(self) -> None:
        await self._passing.wait()


@asynccontextmanager
async def way_to(cluster: Any, folder: Path) -> AsyncIterator[tuple[Way, str]]:
    """A connection to the cluster that can be cut, and a kubeconfig that uses it."""
    address = cluster.api_client.configuration.host
    place = urlsplit(address)
    async with anyio.create_task_group() as tasks:
        way = Way(tasks, place.hostname or "", place.port or 443)
        await way.open()
        file = folder / "kubeconfig"
        file.write_text(Path(kubeconfig() or "").read_text().replace(address, f"https://127.0.0.1:{way.port}"))
        yield way, str(file)
        tasks.cancel_scope.cancel()


async def run_into(
    service: Service,
    session: str,
    error: type[SandboxLost],
    says: str,
    happens: Callable[[], None],
    timeout: float = MISSED,
) -> None:
    """Runs endless code, and once it runs calls `happens`; checks that the run fails with this error and message."""
    started = anyio.Event()

    async def seen(stream: str, text: str) -> None:
        started.set()

    async def run() -> None:
        with pytest.raises(error, match=says) as raised:
            await execute(
                service, "echo on; sleep 1000", language="bash", session_id=session, timeout=timeout, on_output=seen
            )
        assert raised.type is error

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await started.wait()
        happens()


async def test_a_cluster_that_goes_away_during_a_run_is_soon_reported_and_used_again_once_it_is_back(
    serving: Serving, cluster: Any, namespace: str, folder: Path
) -> None:
    def phases() -> list[str]:
        return [pod.status.phase for pod in cluster.list_namespaced_pod(namespace).items]

    limits = {"timeout": MISSED}
    async with way_to(cluster, folder) as (way, file), serving({"kubeconfig": file}, limits=limits) as service:
        busy = await execute(service, "x=1", language="bash")
        idle = await execute(service, "x=2", language="bash")
        says = r"the connection to pod sandbox-\w+ broke: kubernetes does not answer at .*; check that the cluster runs"
        with within(SOON):
            await run_into(service, busy.session_id, SandboxLost, says, way.cut)
        for session in ("", idle.session_id):
            with within(SOON), pytest.raises(EngineUnavailable, match="kubernetes does not answer at"):
                await execute(service, "echo $x", language="bash", session_id=session)
        # Nothing ends them from outside: pods end with the connection of their server.
        await until(lambda: {*phases()} <= {"Succeeded"}, SOON)

        await way.open()
        for session in (busy.session_id, idle.session_id):
            with within(SOON):
                again = await execute(service, "echo [$x]", language="bash", session_id=session)
            assert again.stdout.text == "[]\n"
            assert any("started fresh" in note for note in again.notes)
        await until(lambda: phases() == ["Running", "Running"], SOON)
    await until(lambda: phases() == [], SOON)


@pytest.mark.only_in_all
async def test_a_cluster_that_is_silent_at_the_end_of_a_run_is_named_and_the_session_keeps_its_state(
    serving: Serving, cluster: Any, namespace: str, folder: Path
) -> None:
    async with way_to(cluster, folder) as (way, file), serving({"kubeconfig": file}) as service:
        session = (await execute(service, "x=41", language="bash")).session_id
        says = "kubernetes does not answer at .*: no answer within 3 s, and what the code did is unknown"
        with within(SOON):
            await run_into(service, session, EngineSilent, says, way.hold, 2)
        for again in (session, ""):
            with within(SOON), pytest.raises(EngineUnavailable, match="kubernetes does not answer at"):
                await execute(service, "echo $x", language="bash", session_id=again)
        way.let_go()
        with within(SOON):
            kept = await execute(service, "echo $x", language="bash", session_id=session)
        assert (kept.stdout.text, kept.notes) == ("41\n", ())
    await until(lambda: not cluster.list_namespaced_pod(namespace).items, SOON)


async def test_a_start_under_way_when_the_cluster_goes_away_fails_soon_and_its_pod_is_removed_later(
    serving: Serving, cluster: Any, namespace: str, folder: Path
) -> None:
    # A pod that takes long to start.
    wait = {"name": "wait", "image": "llm-sandbox-mcp-bash", "imagePullPolicy": "IfNotPresent"}
    manifest = {"spec": {"initContainers": [{**wait, "command": ["sleep", "1000"]}]}}

    def pods() -> list[Any]:
        found: list[Any] = cluster.list_namespaced_pod(namespace).items
        return found

    async with (
        way_to(cluster, folder) as (way, file),
        serving({"kubeconfig": file, "pod_manifest": manifest}) as service,
    ):

        async def start() -> None:
            with within(SOON), pytest.raises(EngineUnavailable, match="kubernetes does not answer at"):
                await execute(service, "echo x", language="bash")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await until(lambda: len(pods()) == 1, SOON)
            way.cut()
        assert len(pods()) == 1
        await way.open()
        # Nobody waits for it any more, and no session would remove it.
        await until(lambda: not pods(), SOON)


@pytest.fixture
def kubelet() -> int:
    """The kubelet of the cluster that tests started on this machine; without one, the test is skipped."""
    noted = Path(kubeconfig() or "").with_name("kubelet.pid")
    if os.environ.get("KUBECONFIG") or not noted.is_file():
        lack_own_cluster("the kubelet can only be stopped in the tests' own cluster")
    return int(noted.read_text())


@contextmanager
def freezing(pid: int) -> Iterator[Callable[[], None]]:
    """Gives a function that stops a process; it continues when the scope ends."""
    try:
        yield partial(os.kill, pid, signal.SIGSTOP)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.alone
@pytest.mark.only_in_all
async def test_a_silent_node_is_reported_by_name_and_used_again_once_it_answers(
    kubelet: int, serving: Serving, cluster: Any, namespace: str
) -> None:
    async with serving(limits={"timeout": MISSED}) as service:
        first = await execute(service, "x=1", language="bash")
        with freezing(kubelet) as freeze:
            says = r"pod sandbox-\w+ was lost: NodeLost, node-1 does not answer; check the node"
            with within(MISSED):
                await run_into(service, first.session_id, NodeLost, says, freeze)
        # As long as the node has a taint, no pod is scheduled on it.
        await until(lambda: not any(node.spec.taints for node in cluster.list_node().items), SOON)
        with within(SOON):
            again = await execute(service, "echo [$x]", language="bash", session_id=first.session_id)
        assert again.stdout.text == "[]\n"
    await until(lambda: not cluster.list_namespaced_pod(namespace).items, SOON)
