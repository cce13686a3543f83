"""Pods that are lost through no fault of their code: sessions go on from their last save, or are said to be lost."""

import itertools
import os
import select
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.base.errors import EngineUnavailable, SandboxLost, Unschedulable
from tests.conformance.kept import BUSY, KEPT, Subject, goes_on, noticed, sandbox_of
from tests.containers.engines import until
from tests.deadlines import within
from tests.engines import kubeconfig, lack_own_cluster, small_profile

from .test_outages import SOON, way_to

pytestmark = [pytest.mark.anyio, pytest.mark.only_in_all]

BACK = 100.0
"""Seconds for an API server to end, as it waits for a minute, or to start."""

kept = pytest.mark.parametrize("kept", KEPT)
busy = pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])


Worked = Callable[..., Any]


@pytest.fixture
def worked(folder: Path, namespace: str) -> Worked:
    """Opens a session that has worked, and whose code runs if it is busy."""

    @asynccontextmanager
    async def opened(kept: str, *, busy: bool = False, **kubernetes: object) -> AsyncIterator[Subject]:
        tables: dict[str, Mapping[str, object]] = {
            "kubernetes": {"namespace": namespace, **kubernetes},
            "sessions": {"save_timeout": 30.0, **KEPT[kept]},
            "limits": {"timeout": 3 * BACK},
        }
        subject = Subject(small_profile("kubernetes", folder, **tables), "kubernetes")
        async with subject.served():
            await subject.start()
            await subject.work()
            await subject.work()
            if busy:
                await subject.begin(BUSY)
            yield subject

    return opened


@dataclass(frozen=True)
class Daemon:
    """A process of the tests' own cluster, which a test can end and start again as it was."""

    noted: Path
    """The file with its pid."""
    command: tuple[str, ...]
    environment: Mapping[str, str]
    place: str

    def end(self, number: signal.Signals) -> None:
        """Ends it, and returns once it has ended."""
        pid = int(self.noted.read_text())
        ended = os.pidfd_open(pid)
        try:
            os.kill(pid, number)
            assert select.select([ended], [], [], BACK)[0]
        finally:
            os.close(ended)

    def start(self) -> None:
        """Starts it, as no child of this process."""
        script = f'echo $$ >{self.noted.name}; exec "$@" >>{self.noted.stem}.log 2>&1 </dev/null'
        command = ["setsid", "--fork", "sh", "-c", script, "sh", *self.command]
        subprocess.run(command, cwd=self.place, env=self.environment, check=True)


@pytest.fixture
def api_server() -> Daemon:
    """The API server of the cluster that tests started on this machine; without one, the test is skipped."""
    noted = Path(kubeconfig() or "").with_name("apiserver.pid")
    if os.environ.get("KUBECONFIG") or not noted.is_file():
        lack_own_cluster("the API server can only be restarted in the tests' own cluster")
    process = Path("/proc", noted.read_text().strip())
    command, environment = (
        [os.fsdecode(word) for word in (process / name).read_bytes().split(b"\0") if word]
        for name in ("cmdline", "environ")
    )
    variables = dict(entry.split("=", 1) for entry in environment)
    return Daemon(noted, tuple(command), variables, os.readlink(process / "cwd"))


@asynccontextmanager
async def away(api_server: Daemon, cluster: Any, number: signal.Signals) -> AsyncIterator[None]:
    """A scope in which the cluster has no API server."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    def answers() -> bool:
        client = cluster.api_client
        token = client.configuration.auth_settings()["BearerToken"]
        try:
            # A connection of its own: that of the fixture broke, and another one would stay open after the test.
            with client:
                answer = client.call_api("GET", f"{client.configuration.host}/readyz", {token["key"]: token["value"]})
                answer.read()
        except (ApiException, HTTPError):
            return False
        return bool(answer.status == 200)

    try:
        await anyio.to_thread.run_sync(api_server.end, number)
        yield
    finally:
        await anyio.to_thread.run_sync(api_server.start)
        with anyio.CancelScope(shield=True):
            await until(answers, BACK)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("number", "busy", "kept"),
    [
        (signal.SIGTERM, True, "kept"),  # which takes a minute
        *itertools.product([signal.SIGKILL], [False, True], KEPT),
    ],
)
async def test_a_session_goes_on_after_the_api_server_was_started_again(
    api_server: Daemon, cluster: Any, worked: Worked, number: signal.Signals, busy: bool, kept: str
) -> None:
    async with worked(kept, busy=busy) as subject:
        async with away(api_server, cluster, number):
            if busy:
                # The first if the server has not noticed yet that the connection broke.
                errors = SandboxLost, EngineUnavailable
                with within(SOON), pytest.raises(errors, match="kubernetes does not answer at"):
                    await subject.found()
        await goes_on(subject, "connection")


@kept
@busy
async def test_a_session_goes_on_after_the_connection_to_the_cluster_was_cut(
    cluster: Any, worked: Worked, folder: Path, busy: bool, kept: str
) -> None:
    async with way_to(cluster, folder) as (way, file), worked(kept, busy=busy, kubeconfig=file) as subject:
        sandbox = await sandbox_of(subject.service, subject.id)
        way.cut()
        await noticed(sandbox)
        with within(SOON), pytest.raises(EngineUnavailable, match="kubernetes does not answer at"):
            await subject.found()
        await way.open()
        await goes_on(subject, "connection")
        await subject.end()


async def evict(cluster: Any, namespace: str, pod: str) -> None:
    """Evicts a pod, as `kubectl drain` does."""
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    await anyio.to_thread.run_sync(cluster.create_namespaced_pod_eviction, pod, namespace, eviction)


@kept
@busy
async def test_a_session_goes_on_after_its_pod_was_evicted(
    cluster: Any, namespace: str, worked: Worked, busy: bool, kept: str
) -> None:
    async with worked(kept, busy=busy) as subject:
        sandbox = await sandbox_of(subject.service, subject.id)
        await evict(cluster, namespace, sandbox.id)
        await noticed(sandbox)
        await goes_on(subject, f"pod {sandbox.id} was ")


@pytest.mark.alone
@kept
@busy
async def test_a_session_whose_node_is_drained_goes_on_once_there_is_a_node(
    cluster: Any, namespace: str, worked: Worked, busy: bool, kept: str
) -> None:
    def schedule(yes: bool) -> None:
        for node in cluster.list_node().items:
            cluster.patch_node(node.metadata.name, {"spec": {"unschedulable": not yes}})

    async with worked(kept, busy=busy, node_timeout=1.0) as subject:
        sandbox = await sandbox_of(subject.service, subject.id)
        await anyio.to_thread.run_sync(schedule, False)
        try:
            await evict(cluster, namespace, sandbox.id)
            await noticed(sandbox)
            for _ in range(2):
                with within(SOON), pytest.raises(Unschedulable, match="no node takes pod"):
                    await subject.found()
        finally:
            await anyio.to_thread.run_sync(schedule, True)
        # The scheduler looks at the node a moment later.
        await until(lambda: not any(node.spec.taints for node in cluster.list_node().items), SOON)
        await goes_on(subject, f"pod {sandbox.id} was ")
