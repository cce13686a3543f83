"""Settings of the profile for pods apply to every pod that is made, on a real cluster."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.backends.kubernetes.leases import SERVER
from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.testing.asking import execute
from tests.deadlines import within

from .conftest import Serving

pytestmark = pytest.mark.anyio

SOON = 50.0
"""Seconds for an answer: five are usual, ten times that allows for a busy machine."""


async def only_pod(serving: Serving, cluster: Any, namespace: str, **section: object) -> Any:
    """The pod of a session with these settings in the profile, after code has run in it."""
    async with serving(section) as service:
        with within(SOON):
            assert (await execute(service, "echo x", language="bash")).stdout.text == "x\n"
        (pod,) = (await anyio.to_thread.run_sync(cluster.list_namespaced_pod, namespace)).items
        return pod


@pytest.fixture
async def runtime_class(cluster: Any, namespace: str) -> AsyncIterator[str]:
    """A runtime class for `runc`, which runs containers here by default and which every containerd knows by that
    name."""
    from kubernetes.client import NodeV1Api

    classes: Any = NodeV1Api(cluster.api_client)
    made = {"metadata": {"name": namespace}, "handler": "runc"}
    await anyio.to_thread.run_sync(classes.create_runtime_class, made)
    try:
        yield namespace
    finally:
        await anyio.to_thread.run_sync(classes.delete_runtime_class, namespace)


async def test_a_runtime_class(serving: Serving, cluster: Any, namespace: str, runtime_class: str) -> None:
    pod = await only_pod(serving, cluster, namespace, runtime_class=runtime_class)
    assert pod.spec.runtime_class_name == runtime_class


async def test_a_missing_runtime_class_is_named(serving: Serving) -> None:
    async with serving({"runtime_class": "no-such-class"}) as service:
        with within(SOON), pytest.raises(StartFailed, match=r'RuntimeClass "?no-such-class"? not found'):
            await execute(service, "echo x", language="bash")


async def test_where_pods_are_put(serving: Serving, cluster: Any, namespace: str) -> None:
    (node, *_) = (await anyio.to_thread.run_sync(cluster.list_node)).items
    name = node.metadata.labels["kubernetes.io/hostname"]
    toleration = {"key": "sandboxes", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    pod = await only_pod(
        serving,
        cluster,
        namespace,
        node_selector={"kubernetes.io/hostname": name},
        tolerations=(toleration,),
    )
    assert pod.spec.node_name == node.metadata.name
    seen = [one.to_dict() for one in pod.spec.tolerations]
    assert any(toleration.items() <= one.items() for one in seen)


async def test_labels_annotations_and_pull_secrets(serving: Serving, cluster: Any, namespace: str) -> None:
    pod = await only_pod(
        serving,
        cluster,
        namespace,
        labels={"team": "a"},
        annotations={"example.org/owner": "b"},
        pull_secrets=("registry",),
        pod_manifest={"metadata": {"labels": {"cost": "c"}}, "spec": {"priority": 0}},
    )
    assert {"team": "a", "cost": "c"}.items() <= pod.metadata.labels.items()
    assert SERVER in pod.metadata.labels
    assert pod.metadata.annotations["example.org/owner"] == "b"
    assert [secret.name for secret in pod.spec.image_pull_secrets] == ["registry"]


async def test_a_manifest_adds_settings_for_which_the_profile_has_no_key(
    serving: Serving, cluster: Any, namespace: str
) -> None:
    settings = {"metadata": {"name": "settings"}, "data": {"greeting": "hello"}}
    await anyio.to_thread.run_sync(cluster.create_namespaced_config_map, namespace, settings)
    volume = {"name": "settings", "configMap": {"name": "settings"}}
    container = {"name": "sandbox", "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings"}]}
    manifest = {"spec": {"volumes": [volume], "containers": [container]}}
    async with serving({"pod_manifest": manifest}) as service:
        with within(SOON):
            read = await execute(service, "cat /etc/settings/greeting; ls -d /home/figures", language="bash")
    assert read.stdout.text == "hello/home/figures\n"
