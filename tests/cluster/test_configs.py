"""The files below configs/kubernetes do what the server requires, and grant only what it needs."""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.backends.kubernetes.leases import SERVER
from llm_sandbox_mcp.backends.kubernetes.loosening import loosened
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_backend, open_service
from tests.containers.engines import until
from tests.engines import kubeconfig, small_profile, surroundings, table

from .conftest import Serving
from .kustomizing import CONFIGS, PROFILE, SERVER_NAME, kubectl, without_server

pytestmark = pytest.mark.anyio


@pytest.fixture
async def account(cluster: Any, namespace: str, folder: Path) -> str:
    """A kubeconfig of the service account that the files in configs/kubernetes make."""
    await kubectl("apply", "-k", str(without_server(folder, namespace)))
    secrets: list[str] = []

    def found() -> bool:
        secrets[:] = [
            secret.name for secret in cluster.read_namespaced_service_account(SERVER_NAME, namespace).secrets or ()
        ]
        return bool(secrets)

    await until(found, 20)
    data = (await anyio.to_thread.run_sync(lambda: cluster.read_namespaced_secret(secrets[0], namespace))).data
    text = Path(kubeconfig() or "").read_text()
    token = text.split('token: "')[1].split('"')[0]
    path = folder / "kubeconfig"
    path.write_text(text.replace(json.dumps(token), json.dumps(base64.b64decode(data["token"]).decode())))
    return str(path)


async def test_the_account_can_do_what_the_server_does(account: str, namespace: str, folder: Path) -> None:
    section = {"kubeconfig": account, "namespace": namespace}
    profile = small_profile("kubernetes", folder, kubernetes=section)
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            assert (await execute(service, "echo x", language="bash")).stdout.text == "x\n"
            assert await service.backend.sweep() == 0
        enforced = small_profile("kubernetes", folder, kubernetes={**section, "network": "enforced"})
        async with open_backend(enforced, surroundings(folder)) as backend:
            assert {check.name: check.state for check in await backend.probe()}["network"] == "ok"


MAY = {
    "pods": "create delete list watch",
    "pods/exec": "create get",
    "pods/attach": "create get",
    "leases.coordination.k8s.io": "create delete list patch",
    "networkpolicies.networking.k8s.io": "list",
}
OTHERS = ("pods/log", "secrets", "configmaps", "services", "serviceaccounts", "deployments.apps", "roles", "events")
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


async def test_the_account_can_do_nothing_else(account: str, namespace: str) -> None:
    granted: dict[str, set[str]] = {}

    async def ask(resource: str, verb: str) -> None:
        whole, _, part = resource.partition("/")
        argv = ["kubectl", "--kubeconfig", account, "-n", namespace, "auth", "can-i", verb, whole]
        argv += [f"--subresource={part}"] if part else []
        async with limiter:
            done = await anyio.run_process(argv, check=False)
        if done.stdout == b"yes\n":
            granted.setdefault(resource, set()).add(verb)

    limiter = anyio.CapacityLimiter(8)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for resource in (*MAY, *OTHERS):
                for verb in VERBS:
                    tasks.start_soon(ask, resource, verb)
    assert granted == {resource: {*verbs.split()} for resource, verbs in MAY.items()}


async def test_the_servers_own_pod_is_restricted_except_for_its_account_its_token_and_its_folder(
    namespace: str, folder: Path
) -> None:
    await kubectl("apply", "-k", str(without_server(folder, namespace)))
    deployment = json.loads(await kubectl("-n", namespace, "get", "deployment", SERVER_NAME, "-o", "json"))
    assert {*loosened(deployment["spec"]["template"])} == {
        "spec.automountServiceAccountToken is None",
        "spec.restartPolicy is 'Always'",
        "volume token is a secret",
        "volume tmp is on the disk of its node",
    }


def test_the_servers_profile_is_valid() -> None:
    profile = load_profile(str(CONFIGS / "profile.toml"))
    assert (profile.backend.name, table(profile, "kubernetes").network) == ("kubernetes", "enforced")
    assert profile.http.token_file
    assert f"{SERVER_NAME}.sandboxes" in profile.http.hosts


POLICIES = ("sandboxes", "sandboxes-open", SERVER_NAME)


async def test_the_files_that_the_readme_shows_are_valid(cluster: Any, folder: Path) -> None:
    text = (CONFIGS / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    kustomization = "".join(block for kind, block in blocks if kind == "yaml")
    base = os.path.relpath(CONFIGS, folder.resolve())
    (folder / "kustomization.yaml").write_text(kustomization.replace("../configs/kubernetes", base))
    for block in [block for kind, block in blocks if kind == "toml"]:
        (folder / "profile.toml").write_text(f"{PROFILE}\n{block}")
        assert load_profile(str(folder / "profile.toml")).engines != load_profile("kubernetes").engines
        made = await kubectl("kustomize", str(folder))
        assert "image: registry.example/llm-sandbox-mcp:1\n" in made
        assert "    [kubernetes]\n" in made


def as_query(selector: Any) -> str:
    """A label selector of the cluster, as text for a query."""
    labels = [f"{name}={value}" for name, value in (selector.match_labels or {}).items()]
    return ",".join([*labels, *(wanted.key for wanted in selector.match_expressions or ())])


async def test_only_sandboxes_of_a_profile_with_an_open_network_are_let_out(
    cluster: Any, namespace: str, folder: Path, serving: Serving
) -> None:
    from kubernetes.client import NetworkingV1Api

    await kubectl("apply", "-k", str(without_server(folder, namespace)))
    policies = NetworkingV1Api(cluster.api_client)

    def selected(policy: str) -> set[str]:
        spec: Any = policies.read_namespaced_network_policy(policy, namespace).spec
        listed = cluster.list_namespaced_pod(namespace, label_selector=as_query(spec.pod_selector))
        return {pod.metadata.labels[SERVER] for pod in listed.items}

    async with serving() as plain, serving(network={"mode": "open"}) as granted:
        for service in (plain, granted):
            assert (await execute(service, "echo x", language="bash")).stdout.text == "x\n"
        found = await anyio.to_thread.run_sync(lambda: [selected(name) for name in POLICIES])
    every, let_out, server = found
    assert len(every) == 2
    assert len(let_out) == 1 and let_out < every
    assert server == set()
    enforced = small_profile("kubernetes", folder, kubernetes={"namespace": namespace, "network": "enforced"})
    async with open_backend(enforced, surroundings(folder)) as backend:
        assert {check.name: check.state for check in await backend.probe()}["network"] == "ok"
