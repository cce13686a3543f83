"""The server in the cluster, as configs/kubernetes deploys it: reached over HTTP with a token, with its sandboxes next
to it.

It takes long the first time, because Docker builds the server's image, and the node imports it.
"""

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2
import pytest

from llm_sandbox_mcp.backends.kubernetes.leases import SERVER
from tests.containers.engines import until
from tests.engines import absent, docker_host, kubeconfig, lack_own_cluster
from tests.mcp.results import answer
from tests.mcp.serving import bearing

from . import server_image
from .forwarding import forwarded
from .kustomizing import PROFILE, SERVER_NAME, kubectl, write

pytestmark = pytest.mark.anyio

TOKEN = secrets.token_hex(16)
PORT = 8000
# The tests' cluster has no network plugin that enforces policies, and is small.
SMALL = """
[limits]
memory = "256MiB"
disk = "16MiB"
cpus = 1.0

[kubernetes]
network = "unchecked"
reserved = 0.02
"""


@pytest.fixture
async def image(cluster: Any) -> str:
    """The tag of the server's image, which the cluster has."""
    containerd = Path(kubeconfig() or "").with_name("containerd.sock")
    if not containerd.is_socket():
        lack_own_cluster(f"the server's image cannot be loaded into a cluster without {containerd}")
    if docker_host() is None:
        absent("docker", "it builds the server's image")
    return await anyio.to_thread.run_sync(server_image.ensure, containerd)


@pytest.fixture
async def gateway(cluster: Any) -> AsyncIterator[tuple[str, int]]:
    """The address and port where pods reach the cluster's API: the tests' cluster has no addresses of services."""
    (node,) = (await anyio.to_thread.run_sync(cluster.list_node)).items
    (address,) = [one.address for one in node.status.addresses if one.type == "InternalIP"]
    place = urlsplit(cluster.api_client.configuration.host)
    async with forwarded(address, place.hostname, place.port) as port:
        yield address, port


@pytest.fixture
async def deployed(
    cluster: Any, namespace: str, folder: Path, image: str, gateway: tuple[str, int]
) -> AsyncIterator[str]:
    """The URL of the server's pod, which is ready."""
    environment = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": gateway[0]},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(gateway[1])},
    ]
    containers = [{"name": "server", "env": environment}]
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SERVER_NAME},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    kustomization = write(
        folder,
        namespace,
        PROFILE.replace(".sandboxes", f".{namespace}") + SMALL,
        images=[{"name": SERVER_NAME, "newTag": image}],
        patches=[{"patch": json.dumps(patch)}],
    )
    secret = ("secret", "generic", f"{SERVER_NAME}-token", "--from-file=token=/dev/stdin")
    await kubectl("-n", namespace, "create", *secret, given=f"{TOKEN}\n")
    await kubectl("apply", "-k", str(kustomization))
    try:
        await kubectl("-n", namespace, "rollout", "status", f"deployment/{SERVER_NAME}", "--timeout=90s", seconds=100)
        pods = f"app.kubernetes.io/name={SERVER_NAME}"
        listed = await anyio.to_thread.run_sync(lambda: cluster.list_namespaced_pod(namespace, label_selector=pods))
        (pod,) = listed.items
        yield f"http://{pod.status.pod_ip}:{PORT}"
    except BaseException:
        with anyio.CancelScope(shield=True):
            print(await kubectl("-n", namespace, "get", "events"))
            print(await kubectl("-n", namespace, "logs", f"deployment/{SERVER_NAME}"))
        raise


async def test_a_client_runs_code_on_the_server_in_the_cluster(cluster: Any, namespace: str, deployed: str) -> None:
    def left() -> tuple[int, int]:
        from kubernetes.client import CoordinationV1Api

        leases = CoordinationV1Api(cluster.api_client).list_namespaced_lease(namespace).items
        return len(cluster.list_namespaced_pod(namespace, label_selector=SERVER).items), len(leases)

    host = {"host": f"{SERVER_NAME}.{namespace}"}
    bearer = {"authorization": f"Bearer {TOKEN}"}
    with anyio.fail_after(120):
        async with httpx2.AsyncClient(headers=host) as http:
            assert (await http.get(f"{deployed}/health")).text == "ok\n"
            refused = await http.post(f"{deployed}/mcp", headers={"authorization": "Bearer wrong"}, json={})
            assert refused.status_code == 401

        for way in ("2026-07-28", "legacy"):
            async with bearing(deployed, way, host | bearer) as client:
                first = await answer(client, "execute_code", code="import os; x = 40; os.getuid() > 0")
                assert (first["result"], first["session_state"]) == ("True", "kept")
                again = await answer(client, "execute_code", code="x + 2", session_id=first["session_id"])
                assert (again["result"], again["session_state"]) == ("42", "kept")

        pods, leases = await anyio.to_thread.run_sync(left)
        assert (pods >= 2, leases) == (True, 1)
        # Here only the server itself removes its sandboxes and gives up its lease.
        await kubectl("-n", namespace, "delete", "deployment", SERVER_NAME, "--wait=false")
        await until(lambda: left() == (0, 0), 30)
