"""Faults of a cluster, or of a request to it, are soon reported by name and with the fix; nothing is left behind."""

import base64
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import (
    CapacityReached,
    EngineUnavailable,
    Evicted,
    ImageFailed,
    ImageMissing,
    NodeLost,
    OutOfMemory,
    SandboxError,
    SandboxLost,
    StartFailed,
    Unschedulable,
)
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_backend
from tests.containers.engines import until
from tests.deadlines import within
from tests.engines import kubeconfig, small_profile, surroundings

from .conftest import Serving

pytestmark = pytest.mark.anyio

SOON = 50.0
"""Seconds until an error is reported: five are promised, ten times that allows for a busy machine."""
MIB = 1 << 20


@pytest.fixture(autouse=True)
async def nothing_left(cluster: Any, namespace: str) -> AsyncIterator[None]:
    yield
    await until(lambda: not cluster.list_namespaced_pod(namespace).items, 10)


async def refused(service: Service, error: type[SandboxError], *says: str) -> None:
    """Runs code, and checks that it fails with this error and that its message contains all of these words."""
    with within(SOON), pytest.raises(error) as raised:
        await execute(service, "echo x", language="bash")
    for words in says:
        assert words in str(raised.value), raised.value
    assert "; " in str(raised.value)


def config(folder: Path, **changes: str) -> str:
    """The tests' kubeconfig with some words replaced."""
    text = Path(kubeconfig() or "").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "kubeconfig"
    path.write_text(text)
    return str(path)


@pytest.fixture
def server() -> str:
    """The address of the cluster's API."""
    lines = Path(kubeconfig() or "").read_text().split("server: ")[1]
    return lines.split(",")[0].split("\n")[0].strip(' "}')


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"


async def test_no_cluster_at_that_address(serving: Serving, folder: Path, server: str) -> None:
    file = config(folder, **{server: "https://127.0.0.1:9"})
    async with serving({"kubeconfig": file}) as service:
        await refused(service, EngineUnavailable, "kubernetes does not answer at https://127.0.0.1:9", "context")


async def test_a_cluster_that_never_answers(serving: Serving, folder: Path, server: str, silent: str) -> None:
    async with serving({"kubeconfig": config(folder, **{server: silent})}) as service:
        await refused(service, EngineUnavailable, "does not answer at", "no answer in time")


async def test_a_missing_kubeconfig(serving: Serving) -> None:
    async with serving({"kubeconfig": "/nonexistent/config"}) as service:
        await refused(service, EngineUnavailable, "/nonexistent/config", "kubernetes.kubeconfig")


async def test_a_missing_context(serving: Serving) -> None:
    async with serving({"context": "another"}) as service:
        await refused(service, EngineUnavailable, "another", "kubernetes.context")


async def test_credentials_that_are_no_longer_accepted(serving: Serving, folder: Path) -> None:
    token = Path(kubeconfig() or "").read_text().split('token: "')[1].split('"')[0]
    async with serving({"kubeconfig": config(folder, **{token: "expired"})}) as service:
        await refused(service, EngineUnavailable, "does not accept our credentials", "renew them")


async def test_a_missing_namespace(serving: Serving) -> None:
    async with serving({"namespace": "nowhere"}) as service:
        await refused(service, EngineUnavailable, "has no namespace nowhere", "create it")


async def test_a_quota_that_is_used_up(serving: Serving, cluster: Any, namespace: str) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    await anyio.to_thread.run_sync(lambda: cluster.create_namespaced_resource_quota(namespace, quota))
    await until(lambda: bool(cluster.read_namespaced_resource_quota("few", namespace).status.used), 20)
    async with serving() as service:
        kept = await execute(service, "x=1", language="bash")
        await refused(service, CapacityReached, f"namespace {namespace}", "exceeded quota", "few", "ResourceQuota")
        again = await execute(service, "echo $x", language="bash", session_id=kept.session_id)
        assert again.stdout.text == "1\n"


async def test_an_image_that_cannot_be_pulled(serving: Serving) -> None:
    async with serving({"images": {"bash": "127.0.0.1:9/none:1"}}) as service:
        await refused(
            service, ImageFailed, "image 127.0.0.1:9/none:1 of pod sandbox-", "is not available", "pull_secrets"
        )


async def test_an_image_that_is_never_pulled(serving: Serving) -> None:
    async with serving({"images": {"bash": "none:1"}, "pull": "Never"}) as service:
        await refused(service, ImageMissing, "image none:1", "ErrImageNeverPull")


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ({"spec": {"containers": [{"name": "sandbox", "imagePullPolicy": "Sometimes"}]}}, "imagePullPolicy"),
        ({"spec": {"restartPolicy": 7}}, "restartPolicy"),
        ({"spec": {"volumes": [{"name": "UPPER", "emptyDir": {}}]}}, "UPPER"),
    ],
    ids=str,
)
async def test_a_manifest_with_a_mistake(serving: Serving, mistake: dict[str, object], says: str) -> None:
    async with serving({"pod_manifest": mistake}) as service:
        await refused(service, StartFailed, says, "kubernetes.pod_manifest")


async def test_what_a_manifest_loosens_is_reported_at_start(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    async with serving():
        assert caplog.messages == []
    async with serving({"pod_manifest": {"spec": {"hostNetwork": True}}}):
        assert caplog.messages == [
            "kubernetes.pod_manifest of the profile loosens every sandbox: spec.hostNetwork is True"
        ]


async def test_a_pod_that_no_node_takes(serving: Serving) -> None:
    async with serving({"node_selector": {"pool": "none"}, "node_timeout": 1}) as service:
        await refused(service, Unschedulable, "no node takes pod sandbox-", "Unschedulable", "add nodes")


async def test_a_pod_waits_for_a_node_that_takes_it(serving: Serving, cluster: Any, namespace: str) -> None:
    """As in a cluster that adds nodes when they are needed."""
    label = f"test-{namespace}"
    name = cluster.list_node().items[0].metadata.name

    async def on_progress(line: str) -> None:
        if line.startswith("waiting for a node: no node takes pod sandbox-"):
            await anyio.to_thread.run_sync(cluster.patch_node, name, {"metadata": {"labels": {label: "yes"}}})

    try:
        async with serving({"node_selector": {label: "yes"}}) as service:
            with within(SOON):
                run = await execute(service, "echo here", language="bash", on_progress=on_progress)
            assert run.stdout.text == "here\n"
    finally:
        cluster.patch_node(name, {"metadata": {"labels": {label: None}}})


def deletes(cluster: Any, namespace: str, name: str) -> None:
    cluster.delete_namespaced_pod(name, namespace, body={"gracePeriodSeconds": 0})


def evicts(cluster: Any, namespace: str, name: str) -> None:
    """What a node does when it has too little room."""
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    cluster.patch_namespaced_pod_status(name, namespace, {"status": evicted})


def loses_its_node(cluster: Any, namespace: str, name: str) -> None:
    """What the cluster does when it has not heard of a node for a while."""
    silent = {"conditions": [{"type": "Ready", "status": "False"}]}
    cluster.patch_namespaced_pod_status(name, namespace, {"status": silent})


@pytest.mark.parametrize(
    ("happens", "error", "says"),
    [
        (deletes, SandboxLost, "was deleted; open a new session"),
        (evicts, Evicted, "was ended: Evicted, The node was low on resource: memory.; give its node more resources"),
        (loses_its_node, NodeLost, "was lost: NodeLost, node-1 does not answer; check the node"),
    ],
)
async def test_the_loss_of_a_sessions_pod_is_reported_by_name(
    serving: Serving,
    cluster: Any,
    namespace: str,
    happens: Callable[[Any, str, str], None],
    error: type[SandboxLost],
    says: str,
) -> None:
    async with serving() as service:
        other = await execute(service, "x=1", language="bash")
        there = {pod.metadata.name for pod in cluster.list_namespaced_pod(namespace).items}
        session = await execute(service, "y=1", language="bash")
        name = next(
            pod.metadata.name for pod in cluster.list_namespaced_pod(namespace).items if pod.metadata.name not in there
        )
        started = anyio.Event()

        async def seen(stream: str, text: str) -> None:
            started.set()

        async def run() -> None:
            with pytest.raises(SandboxLost) as raised:
                await execute(
                    service, "echo on; sleep 1000", language="bash", session_id=session.session_id, on_output=seen
                )
            assert raised.type is error
            assert f"pod {name} {says}" in str(raised.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await started.wait()
            await anyio.to_thread.run_sync(happens, cluster, namespace, name)
            tasks.cancel_scope.deadline = anyio.current_time() + SOON
        assert not tasks.cancel_scope.cancelled_caught
        # Nobody can use the pod any more, so it is removed, whether or not the session goes on.
        await until(lambda: len(cluster.list_namespaced_pod(namespace).items) == 1, SOON)
        again = await execute(service, "echo ${x}${y}", language="bash", session_id=other.session_id)
        assert again.stdout.text == "1\n"
        fresh = await execute(service, "echo fresh", language="bash", session_id=session.session_id)
        assert fresh.stdout.text == "fresh\n"
        assert any("started fresh" in note for note in fresh.notes)


async def test_an_idle_session_reports_why_it_starts_fresh(serving: Serving, cluster: Any, namespace: str) -> None:
    async with serving() as service:
        first = await execute(service, "x=1", language="bash")
        (pod,) = cluster.list_namespaced_pod(namespace).items
        await anyio.to_thread.run_sync(evicts, cluster, namespace, pod.metadata.name)
        await until(lambda: not cluster.list_namespaced_pod(namespace).items, SOON)
        again = await execute(service, "echo ${x}fresh", language="bash", session_id=first.session_id)
    assert again.stdout.text == "fresh\n"
    (note,) = again.notes
    assert f"since an earlier run pod {pod.metadata.name} was ended: Evicted, The node was low on resource" in note


FILL = "for folder in /tmp /home /sandbox; do head -c 60M /dev/zero >>$folder/full; done"
"""Takes more memory than a pod has, in files: killing a process frees none of it."""


async def test_code_that_takes_all_memory_of_its_pod_is_out_of_memory(
    serving: Serving, cluster: Any, namespace: str
) -> None:
    async with serving(limits={"memory": 64 * MIB, "disk": 64 * MIB}) as service:
        other = await execute(service, "x=1", language="bash")
        first = await execute(service, "y=1", language="bash")
        with within(SOON):
            full = await execute(service, f"while {FILL}; do :; done", language="bash", session_id=first.session_id)
        assert (full.status, full.session_state) == ("out_of_memory", "fresh")
        assert "the memory limit of 64MiB was reached; use less data at once" in full.notes
        await until(lambda: len(cluster.list_namespaced_pod(namespace).items) == 1, SOON)
        again = await execute(service, "echo ${y}fresh", language="bash", session_id=first.session_id)
        assert again.stdout.text == "fresh\n"
        assert (await execute(service, "echo $x", language="bash", session_id=other.session_id)).stdout.text == "1\n"


async def test_a_pod_that_is_killed_at_its_memory_limit_has_its_own_error(folder: Path, namespace: str) -> None:
    section = {"namespace": namespace}
    limits = {"memory": 64 * MIB, "disk": 64 * MIB}
    profile = small_profile("kubernetes", folder, kubernetes=section, limits=limits)

    async def fill(sandbox: Sandbox) -> None:
        while True:  # the agent is the last to be killed
            async with await sandbox.spawn(("bash", "-c", FILL), {"PATH": PATH}) as process:
                await process.wait()

    async with open_backend(profile, surroundings(folder)) as backend:
        with within(SOON):
            async with backend.sandbox(profile.policy(), backend.image_of("bash")) as sandbox:
                with pytest.raises((SandboxLost, StartFailed)):
                    await fill(sandbox)
                lost = await sandbox.loss()
    assert type(lost) is OutOfMemory
    assert re.fullmatch(r"pod sandbox-\w+ ended: OOMKilled; raise limits.memory in the profile, .*", str(lost))


_VERBS = [
    *("pods create", "pods list", "pods watch", "pods/exec create", "pods/attach create"),
    "leases create",
]


@asynccontextmanager
async def allowed(cluster: Any, namespace: str, folder: Path, without: str) -> AsyncIterator[str]:
    """A kubeconfig of a user who may do everything that the server needs, except one thing."""
    from kubernetes.client import RbacAuthorizationV1Api

    role: Any = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/exec", "pods/attach"], "verbs": ["create", "get"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "delete", "list", "patch"]},
    ]
    resource, verb = without.split()
    rules: list[Any] = []
    for rule in role:
        for name in rule["resources"]:
            lacks = {verb, "get"} if name == resource and "/" in name else {verb} if name == resource else set()
            rules.append({**rule, "resources": [name], "verbs": [v for v in rule["verbs"] if v not in lacks]})
    rbac = RbacAuthorizationV1Api(cluster.api_client)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    binding: Any = {
        "metadata": {"name": "some"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some"},
        "subjects": [subject],
    }

    def make() -> str:
        some: Any = {"metadata": {"name": "some"}, "rules": [rule for rule in rules if rule["verbs"]]}
        rbac.create_namespaced_role(namespace, some)
        rbac.create_namespaced_role_binding(namespace, binding)
        account = cluster.read_namespaced_service_account("default", namespace)
        secret = cluster.read_namespaced_secret(account.secrets[0].name, namespace)
        return base64.b64decode(secret.data["token"]).decode()

    # A cluster makes the account first and its token a moment later.
    await until(lambda: bool(cluster.read_namespaced_service_account("default", namespace).secrets), 20)
    theirs = await anyio.to_thread.run_sync(make)
    token = Path(kubeconfig() or "").read_text().split('token: "')[1].split('"')[0]
    yield config(folder, **{json.dumps(token): json.dumps(theirs)})


@pytest.mark.parametrize("without", _VERBS)
async def test_a_forbidden_verb(serving: Serving, cluster: Any, namespace: str, folder: Path, without: str) -> None:
    async with allowed(cluster, namespace, folder, without) as file, serving({"kubeconfig": file}) as service:
        await refused(service, EngineUnavailable, without.split()[0], "configs/kubernetes")


async def test_a_forbidden_sweep(serving: Serving, cluster: Any, namespace: str, folder: Path) -> None:
    async with allowed(cluster, namespace, folder, "leases list") as file, serving({"kubeconfig": file}) as service:
        with (
            within(SOON),
            pytest.raises(EngineUnavailable, match=r"does not allow this server to list pods and leases: .*; grant"),
        ):
            await service.backend.sweep()


async def test_a_pod_that_may_not_be_deleted_ends_and_a_warning_is_logged(
    serving: Serving, cluster: Any, namespace: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def pods() -> list[Any]:
        found: list[Any] = cluster.list_namespaced_pod(namespace).items
        return found

    async with allowed(cluster, namespace, folder, "pods delete") as file, serving({"kubeconfig": file}) as service:
        first = await execute(service, "echo x", language="bash")
        await service.sessions.close(first.session_id)
        # Its agent's input ends with the connection.
        await until(lambda: [pod.status.phase for pod in pods()] == ["Succeeded"], SOON)
        (said,) = caplog.messages
        assert re.search(r"sandbox-\w+ is not removed yet: .* cannot be deleted: .*cannot delete resource", said)
    await anyio.to_thread.run_sync(deletes, cluster, namespace, pods()[0].metadata.name)
