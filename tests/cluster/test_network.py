"""Pods without a network: a policy is not enough, the cluster has to enforce it."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.base.errors import EngineUnavailable
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from tests.cli.entry import started
from tests.engines import kubeconfig, lack_own_cluster
from tests.outside import ANSWER, PORT, Outside, outside

from .conftest import Serving
from .kustomizing import kubectl, without_server
from .test_configs import as_query

pytestmark = [pytest.mark.anyio, pytest.mark.alone]

DENY = {
    "metadata": {"name": "deny"},
    "spec": {
        "podSelector": {"matchExpressions": [{"key": "llm-sandbox-mcp.server", "operator": "Exists"}]},
        "policyTypes": ["Ingress", "Egress"],
    },
}
BRIDGE = "cni-test0"
"""The bridge of the pods of the cluster that tests start; that cluster itself does not enforce policies."""


async def deny(cluster: Any, namespace: str) -> None:
    from kubernetes.client import NetworkingV1Api

    policies: Any = NetworkingV1Api(cluster.api_client)
    await anyio.to_thread.run_sync(lambda: policies.create_namespaced_network_policy(namespace, DENY))


@contextmanager
def filtering(rules: Sequence[Sequence[str]]) -> Iterator[None]:
    """Puts iptables rules before all others on this node, in their order, until the scope ends."""
    added = []
    try:
        for chain, *rule in reversed(rules):
            subprocess.run(["iptables", "-w", "-I", chain, *rule], check=True)
            added.append((chain, *rule))
        yield
    finally:
        for placed in added:
            subprocess.run(["iptables", "-w", "-D", *placed], check=True)


@pytest.fixture
def node() -> None:
    """Skips the test unless this machine is the node, where tests can do for pods what a network plugin does."""
    if not (os.geteuid() == 0 and shutil.which("iptables") and Path("/sys/class/net", BRIDGE).exists()):
        lack_own_cluster("tests can only enforce a policy on the node of their own cluster")


@pytest.fixture
def enforced(node: None) -> Iterator[None]:
    """Does for all pods of the tests' own node what a network plugin does for pods to which a policy denies
    everything."""
    with filtering([(chain, "-i", BRIDGE, "-j", "DROP") for chain in ("INPUT", "FORWARD")]):
        yield


async def test_a_namespace_without_a_network_policy(serving: Serving) -> None:
    async with serving({"network": "enforced"}) as service:
        with anyio.fail_after(50), pytest.raises(EngineUnavailable) as raised:
            await execute(service, "echo x", language="bash")
    for words in ("has no NetworkPolicy", "kubectl apply", "unchecked"):
        assert words in str(raised.value)


async def test_a_cluster_that_does_not_enforce_the_policy(serving: Serving, cluster: Any, namespace: str) -> None:
    await deny(cluster, namespace)
    async with serving({"network": "enforced"}) as service:
        with anyio.fail_after(60), pytest.raises(EngineUnavailable, match="does not enforce NetworkPolicy"):
            await execute(service, "echo x", language="bash")


@pytest.mark.usefixtures("enforced")
async def test_a_cluster_that_enforces_the_policy(serving: Serving, cluster: Any, namespace: str) -> None:
    await deny(cluster, namespace)
    async with serving({"network": "enforced"}) as service:
        with anyio.fail_after(30):
            first = await execute(service, "echo x", language="bash")
        assert first.stdout.text == "x\n"
        # The check runs only once: its pods are gone, and the next session starts only its own pod.
        with anyio.fail_after(30):
            await execute(service, "echo x", language="bash")
        assert len(cluster.list_namespaced_pod(namespace).items) == 2


@pytest.mark.usefixtures("enforced")
async def test_an_entry_for_llm_sandboxs_server_runs_code_in_a_pod_of_its_namespace(
    cluster: Any, namespace: str
) -> None:
    entry = {"BACKEND": "kubernetes", "NAMESPACE": namespace, "KUBECONFIG": kubeconfig() or ""}
    async with started(entry) as server:
        with pytest.raises(AssertionError, match=f"namespace {namespace} has no NetworkPolicy .*kubectl apply"):
            await server.prints("echo x")
        await deny(cluster, namespace)
        assert await server.prints("echo x") == "x\n"
        assert cluster.list_namespaced_pod(namespace).items
        assert server.deprecated() == ["BACKEND", "NAMESPACE"]


@pytest.fixture
def world(node: None) -> Iterator[Outside]:
    with outside() as made:
        yield made


def as_rules(cluster: Any, namespace: str) -> list[tuple[str, ...]]:
    """The rules that a network plugin makes of a namespace's policies, for packets of its pods to IPv4 addresses."""
    from kubernetes.client import NetworkingV1Api

    allowed: list[tuple[str, ...]] = []
    denied: list[tuple[str, ...]] = []
    policies: Any = NetworkingV1Api(cluster.api_client).list_namespaced_network_policy(namespace)
    for policy in policies.items:
        pods = cluster.list_namespaced_pod(namespace, label_selector=as_query(policy.spec.pod_selector)).items
        if "Egress" not in policy.spec.policy_types:
            continue
        blocks = [peer.ip_block for rule in policy.spec.egress or () for peer in rule.to or () if peer.ip_block]
        for source in (("FORWARD", "-s", pod.status.pod_ip) for pod in pods):
            denied.append((*source, "-j", "DROP"))
            for block in (block for block in blocks if ":" not in block.cidr):
                allowed += [(*source, "-d", closed, "-j", "DROP") for closed in block._except]
                allowed.append((*source, "-d", block.cidr, "-j", "ACCEPT"))
    return [*allowed, *denied]


async def fetched(service: Service, session: str, world: Outside) -> str:
    reach = f"exec 3<>/dev/tcp/{world.address}/{PORT} && cat <&3"
    code = f"timeout 5 bash -c '{reach}' 2>/dev/null || echo unreachable"
    return (await execute(service, code, language="bash", session_id=session)).stdout.text


async def test_only_a_pod_whose_profile_opens_the_network_reaches_the_world_if_policies_are_enforced(
    serving: Serving, cluster: Any, namespace: str, folder: Path, world: Outside
) -> None:
    await kubectl("apply", "-k", str(without_server(folder, namespace)))
    async with serving() as plain, serving(network={"mode": "open"}) as granted:
        sessions = [(one, (await execute(one, "echo x", language="bash")).session_id) for one in (plain, granted)]
        # First the network carries all packets, as in a cluster that enforces nothing.
        carrying = [("FORWARD", way, BRIDGE, "-j", "ACCEPT") for way in ("-i", "-o")]
        with filtering(carrying):
            assert [await fetched(*session, world) for session in sessions] == [ANSWER, ANSWER]
            policies = await anyio.to_thread.run_sync(as_rules, cluster, namespace)
            with filtering(policies):
                assert [await fetched(*session, world) for session in sessions] == ["unreachable\n", ANSWER]
