"""A pod that someone else started is used as it is, and keeps running afterwards."""

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.base.errors import CapacityReached, EngineUnavailable, SandboxLost, StartFailed
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_backend
from tests.containers.engines import until
from tests.engines import MIB, changed, kubeconfig, small_profile, surroundings

from .conftest import Serving

pytestmark = pytest.mark.anyio

NAME = "theirs"
POD = {
    "metadata": {"name": NAME},
    "spec": {
        "automountServiceAccountToken": False,  # a new namespace does not have a token at once
        "containers": [
            {
                "name": "main",
                "image": "llm-sandbox-mcp-bash",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "600"],
                "securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
            }
        ],
    },
}


@pytest.fixture
async def pod(cluster: Any, namespace: str) -> Any:
    """A pod that was started without the server and only sleeps; gives a function that reads it."""
    await anyio.to_thread.run_sync(cluster.create_namespaced_pod, namespace, POD)
    read = partial(cluster.read_namespaced_pod, NAME, namespace)
    await until(lambda: read().status.phase == "Running", 30)
    return read


async def test_code_runs_in_it_and_it_keeps_running(serving: Serving, pod: Any) -> None:
    with anyio.fail_after(60):
        async with serving({"join": NAME}, limits={"memory": 128 * MIB}) as service:
            first = await execute(service, "x=6; echo yes >kept", language="bash")
            again = await execute(service, "echo $((x * 7)); cat kept", language="bash", session_id=first.session_id)
            assert again.stdout.text == "42\nyes\n"
            stubborn = "trap '' INT; (trap '' INT; while :; do :; done)"
            stopped = await execute(service, stubborn, language="bash", session_id=first.session_id, timeout=0.5)
            assert (stopped.status, stopped.session_state) == ("timeout", "fresh")
            kept = await execute(service, "cat kept", language="bash", session_id=first.session_id)
            assert kept.stdout.text == "yes\n"
    now = pod()
    assert now.status.phase == "Running"
    assert now.metadata.deletion_timestamp is None
    with anyio.fail_after(15):
        await until(lambda: "handlers" not in commands(now.metadata.namespace), 10)


def commands(namespace: str) -> str:
    """The command lines of all processes in the pod."""
    argv = ["kubectl", "--kubeconfig", str(kubeconfig()), "-n", namespace, "exec", NAME, "--"]
    look = [*argv, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]
    return subprocess.run(look, check=True, capture_output=True, text=True).stdout.replace("cat /proc/", "")


async def test_it_serves_one_session_at_a_time(serving: Serving, pod: Any) -> None:
    with anyio.fail_after(60):
        async with serving({"join": NAME}) as service:
            first = await execute(service, "echo 1", language="bash")
            with pytest.raises(CapacityReached, match="one session at a time; close the other"):
                await execute(service, "echo 2", language="bash")
            await service.sessions.close(first.session_id)
            await service.pool_until(lambda pool: pool.leased == pool.closing == 0)
            assert (await execute(service, "echo 3", language="bash")).stdout.text == "3\n"


async def test_a_pod_that_is_missing_or_deleted_is_named(
    serving: Serving, pod: Any, cluster: Any, namespace: str
) -> None:
    with anyio.fail_after(60):
        async with serving({"join": "no-such-pod"}) as service:
            with pytest.raises(StartFailed, match="pod no-such-pod is not running in namespace"):
                await execute(service, "echo 1", language="bash")
        async with serving({"join": NAME}) as service:
            first = await execute(service, "echo 1", language="bash")
            started = anyio.Event()

            async def seen(stream: str, text: str) -> None:
                started.set()

            async def run() -> None:
                with pytest.raises(SandboxLost, match=f"pod {NAME} was deleted; open a new session"):
                    await execute(
                        service, "echo on; sleep 1000", language="bash", session_id=first.session_id, on_output=seen
                    )

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await started.wait()
                now = {"gracePeriodSeconds": 0}
                await anyio.to_thread.run_sync(lambda: cluster.delete_namespaced_pod(NAME, namespace, body=now))
            with pytest.raises(StartFailed, match=f"pod {NAME} is not running in namespace {namespace}; start it"):
                await execute(service, "echo 1", language="bash", session_id=first.session_id)


async def test_doctor_reports_what_it_may_do_that_the_servers_pods_may_not(
    pod: Any, namespace: str, folder: Path
) -> None:
    async def checks(name: str) -> dict[str, tuple[str, str]]:
        profile = small_profile("kubernetes", folder, kubernetes={"namespace": namespace, "join": name})
        async with open_backend(profile, surroundings(folder)) as backend:
            return {check.name: (check.state, check.detail) for check in await backend.probe()}

    with anyio.fail_after(60):
        found = await checks(NAME)
        assert found["pods"][0] == "degraded"
        assert "container main: may gain privileges" in found["pods"][1]
        assert found["network"] == ("degraded", f"the network access of pod {NAME} is not checked")
        assert (await checks("none"))["pods"] == ("missing", f"there is no pod none in namespace {namespace}")


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"join": NAME}, f"pod {NAME} has its own limits, not those of the profile; remove kubernetes.join"),
        (
            {"pod_manifest": {"spec": {"containers": [{"name": "sandbox", "securityContext": {"runAsUser": 1000}}]}}},
            "the user id is 1000; remove this from kubernetes.pod_manifest",
        ),
    ],
    ids=["joined", "changed"],
)
async def test_no_joined_or_changed_pod_is_used_if_all_limits_are_required(
    namespace: str, folder: Path, own: dict[str, object], says: str
) -> None:
    made = small_profile("kubernetes", folder, kubernetes={"namespace": namespace, **own})
    profile = changed(made, backend={"require_limits": True})
    with anyio.fail_after(60):
        async with open_backend(profile, surroundings(folder)) as backend:
            assert {check.name: check.state for check in await backend.probe()}["limits"] == "missing"
            with pytest.raises(EngineUnavailable, match=f"backend.require_limits is set, and {says}"):
                async with backend.sandbox(profile.policy()):
                    pytest.fail("there is a sandbox")
