"""A pod that somebody else started is used as it is, and is still theirs afterwards."""

import subprocess
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.errors import CapacityReached, SandboxLost, StartFailed
from tests.containers.engines import until
from tests.engines import MIB, kubeconfig

from .conftest import Serving

pytestmark = pytest.mark.anyio

NAME = "theirs"
POD = {
    "metadata": {"name": NAME},
    "spec": {
        "automountServiceAccountToken": False,  # which a new namespace does not have at once
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
    """A pod that sleeps, with files that are not ours."""
    await anyio.to_thread.run_sync(cluster.create_namespaced_pod, namespace, POD)
    read = partial(cluster.read_namespaced_pod, NAME, namespace)
    await until(lambda: read().status.phase == "Running", 30)
    return read


async def test_code_runs_in_it_and_it_runs_on(serving: Serving, pod: Any) -> None:
    with anyio.fail_after(60):
        async with serving({"join": NAME}, limits={"memory": 128 * MIB}) as service:
            first = await service.execute("x=6; echo yes >kept", language="bash")
            again = await service.execute("echo $((x * 7)); cat kept", language="bash", session_id=first.session_id)
            assert again.stdout.text == "42\nyes\n"
            stubborn = "trap '' INT; (trap '' INT; while :; do :; done)"
            stopped = await service.execute(stubborn, language="bash", session_id=first.session_id, timeout=0.5)
            assert (stopped.status, stopped.session_state) == ("timeout", "fresh")
            kept = await service.execute("cat kept", language="bash", session_id=first.session_id)
            assert kept.stdout.text == "yes\n"
    now = pod()
    assert now.status.phase == "Running"
    assert now.metadata.deletion_timestamp is None
    with anyio.fail_after(15):
        await until(lambda: "handlers" not in commands(now.metadata.namespace), 10)


def commands(namespace: str) -> str:
    """Of all processes in the pod."""
    argv = ["kubectl", "--kubeconfig", str(kubeconfig()), "-n", namespace, "exec", NAME, "--"]
    look = [*argv, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]
    return subprocess.run(look, check=True, capture_output=True, text=True).stdout.replace("cat /proc/", "")


async def test_it_serves_one_session_at_a_time(serving: Serving, pod: Any) -> None:
    with anyio.fail_after(60):
        async with serving({"join": NAME}) as service:
            first = await service.execute("echo 1", language="bash")
            with pytest.raises(CapacityReached, match="one session at a time; close the other"):
                await service.execute("echo 2", language="bash")
            await service.close_session(first.session_id)
            await service.pool_until(lambda pool: pool.leased == pool.closing == 0)
            assert (await service.execute("echo 3", language="bash")).stdout.text == "3\n"


async def test_one_that_is_not_there_or_goes_is_named(serving: Serving, pod: Any, cluster: Any, namespace: str) -> None:
    with anyio.fail_after(60):
        async with serving({"join": "no-such-pod"}) as service:
            with pytest.raises(StartFailed, match="no-such-pod"):
                await service.execute("echo 1", language="bash")
        async with serving({"join": NAME}) as service:
            first = await service.execute("echo 1", language="bash")
            now = {"gracePeriodSeconds": 0}
            await anyio.to_thread.run_sync(lambda: cluster.delete_namespaced_pod(NAME, namespace, body=now))
            with pytest.raises((SandboxLost, StartFailed)):
                await service.execute("sleep 20", language="bash", session_id=first.session_id)
