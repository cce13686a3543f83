"""Several servers in one namespace: each has its own pods; the pods of a server that is gone are removed, and no
others."""

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.backends.kubernetes.leases import SERVER
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.containers.engines import until
from tests.engines import host_folder, kubeconfig, small_profile
from tests.mcp.talking import server

from .conftest import Serving

pytestmark = pytest.mark.anyio

AGO = datetime.now(UTC) - timedelta(minutes=5)


def names(cluster: Any, namespace: str) -> set[str]:
    return {pod.metadata.name for pod in cluster.list_namespaced_pod(namespace).items}


def leases(cluster: Any) -> Any:
    from kubernetes.client import CoordinationV1Api

    return CoordinationV1Api(cluster.api_client)


def plain_pod(name: str, server_id: str | None) -> Any:
    """A pod like those that a server makes, or one without the label of a server."""
    labels = {SERVER: server_id} if server_id else {}
    container = {"name": "sandbox", "image": "llm-sandbox-mcp-bash", "command": ["sleep", "1000"]}
    # A new namespace does not have a token at once.
    spec = {"automountServiceAccountToken": False, "containers": [container]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


async def test_a_server_gives_up_its_lease_and_its_pods(serving: Serving, cluster: Any, namespace: str) -> None:
    async with serving() as service:
        await execute(service, "x=1", language="bash")
        assert len(names(cluster, namespace)) == 1
        assert len(leases(cluster).list_namespaced_lease(namespace).items) == 1
    assert leases(cluster).list_namespaced_lease(namespace).items == []
    await until(lambda: not names(cluster, namespace), 5)


async def test_a_sweep_removes_pods_without_a_living_server_and_only_those(
    serving: Serving, cluster: Any, namespace: str
) -> None:
    old: Any = {
        "metadata": {"name": "old", "labels": {SERVER: "old"}},
        "spec": {
            "holderIdentity": "old",
            "leaseDurationSeconds": 60,
            "renewTime": AGO.isoformat().replace("+00:00", "Z"),
        },
    }
    others = {"never-leased": "never", "run-out": "old", "of-nobody": None}
    for name, server_id in others.items():
        await anyio.to_thread.run_sync(cluster.create_namespaced_pod, namespace, plain_pod(name, server_id))
    await anyio.to_thread.run_sync(leases(cluster).create_namespaced_lease, namespace, old)
    async with serving() as first, serving() as second:
        one = await execute(first, "x=1", language="bash")
        two = await execute(second, "x=2", language="bash")
        await first.backend.sweep()
        left = names(cluster, namespace)
        assert "of-nobody" in left
        assert not {"never-leased", "run-out"} & left
        assert len(left) == 3
        assert "old" not in {lease.metadata.name for lease in leases(cluster).list_namespaced_lease(namespace).items}
        for service, session, value in ((first, one, "1"), (second, two, "2")):
            again = await execute(service, "echo $x", language="bash", session_id=session.session_id)
            assert again.stdout.text == f"{value}\n"
    await anyio.to_thread.run_sync(
        lambda: cluster.delete_namespaced_pod("of-nobody", namespace, grace_period_seconds=0)
    )


async def test_warm_pods_of_two_servers_are_each_used_once(serving: Serving, cluster: Any, namespace: str) -> None:
    pool = {"min": 2, "languages": ("bash",)}
    async with serving(pool=pool) as first, serving(pool=pool) as second:
        for service in (first, second):
            with anyio.fail_after(30):
                await service.warm()
                await service.pool_until(lambda now: now.warm == 2)
        used: list[str] = []

        async def one(number: int) -> None:
            service = (first, second)[number % 2]
            code = f"[ ! -e mark ] && echo {number} >mark && cat mark"
            result = await execute(service, code, language="bash")
            used.append(result.stdout.text.strip())

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(one, number)
        assert sorted(used) == ["0", "1", "2", "3"]


async def kill_a_server(folder: Path, cluster: Any, namespace: str) -> Any:
    """Kills a server with a pod, so that it cannot clean up; returns its lease, which it has just renewed."""
    text = "\n".join(
        [
            '[backend]\nname = "kubernetes"',
            f'[server]\nruntime = "{folder}/runtime"\ncache = "{folder}/cache"',
            '[pool]\nmin = 0\n[limits]\nmemory = "128MiB"',
            f'[kubernetes]\nkubeconfig = "{kubeconfig()}"\nnamespace = "{namespace}"',
            'reserved = 0.02\nnetwork = "unchecked"',
        ]
    )
    file = anyio.Path(folder, "profile.toml")
    await file.write_text(text)
    with anyio.fail_after(60):
        async with server("--profile", str(file)) as talk:
            await talk.start_endless_run()
            talk.process.send_signal(signal.SIGKILL)
            await talk.process.wait()
    assert len(names(cluster, namespace)) == 1
    (lease,) = leases(cluster).list_namespaced_lease(namespace).items
    return lease


async def change(cluster: Any, lease: Any, **spec: object) -> None:
    """Changes a lease in the cluster."""
    name, namespace = lease.metadata.name, lease.metadata.namespace
    await anyio.to_thread.run_sync(
        lambda: leases(cluster).patch_namespaced_lease(name, namespace, {"spec": spec}),
    )


async def test_the_pods_of_a_server_that_was_killed_end_by_themselves_and_are_swept(
    cluster: Any, namespace: str, folder: Path
) -> None:
    lease = await kill_a_server(folder, cluster, namespace)

    def ended() -> bool:
        return all(pod.status.phase in ("Succeeded", "Failed") for pod in cluster.list_namespaced_pod(namespace).items)

    await until(ended, 15)
    await change(cluster, lease, renewTime=AGO.isoformat().replace("+00:00", "Z"))
    with host_folder() as other:
        async with open_service(small_profile("kubernetes", other, kubernetes={"namespace": namespace})) as service:
            assert await service.backend.sweep() == 1
    await until(lambda: not names(cluster, namespace), 5)


async def test_a_server_that_starts_within_the_lease_of_a_killed_one_sweeps_once_that_has_run_out(
    serving: Serving, cluster: Any, namespace: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_sandbox_mcp.service.preparation._SWEEP", 0.5)
    lease = await kill_a_server(folder, cluster, namespace)

    def held() -> set[str]:
        return {lease.metadata.name for lease in leases(cluster).list_namespaced_lease(namespace).items}

    async with serving() as service:
        await service.warm(())
        # The sweep at its start finds a server that may be alive.
        assert await service.backend.sweep() == 0
        assert lease.metadata.name in held()
        assert names(cluster, namespace)
        await change(cluster, lease, leaseDurationSeconds=1)
        await until(lambda: lease.metadata.name not in held() and not names(cluster, namespace), 30)
        assert len(held()) == 1
