"""Many pods at once, as many as this machine can run."""

import os
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.backends.kubernetes.backend import PodBackend
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from tests.containers.engines import until

from .conftest import Serving

pytestmark = [pytest.mark.anyio, pytest.mark.only_in_all, pytest.mark.alone]

TOGETHER = 40
SECONDS = 240
"""Seconds for all of them to answer, on a machine that does other things too."""


async def requests_so_far(service: Service) -> int:
    """The number of requests of the service to the cluster so far."""
    backend = await service.backend.chosen()
    assert isinstance(backend, PodBackend)
    return (await backend.connected()).calls


async def test_forty_sessions_at_once_all_answer_and_keep_their_state(
    serving: Serving, cluster: Any, namespace: str
) -> None:
    sessions: dict[int, str] = {}
    async with serving(sessions={"max": TOGETHER}, pool={"min": 0, "max": TOGETHER}) as service:
        await execute(service, "true", language="bash", keep_session=False)
        idle = len(os.listdir("/proc/self/fd"))

        async def use(number: int) -> None:
            first = await execute(service, f"x={number}", language="bash")
            assert first.status == "ok", first
            sessions[number] = first.session_id

        async def use_again(number: int) -> None:
            again = await execute(service, "echo $x", language="bash", session_id=sessions[number])
            assert again.stdout.text == f"{number}\n"

        with anyio.fail_after(SECONDS):
            for task in (use, use_again):
                async with anyio.create_task_group() as tasks:
                    for number in range(TOGETHER):
                        tasks.start_soon(task, number)
        # As many as the room for sandboxes allows for; it took two.
        assert len(os.listdir("/proc/self/fd")) - idle <= 4 * TOGETHER
        pods = [pod for pod in cluster.list_namespaced_pod(namespace).items if not pod.metadata.deletion_timestamp]
        assert len(pods) == TOGETHER
        assert len({pod.spec.security_context.run_as_user for pod in pods}) == TOGETHER
        before = await requests_so_far(service)
        for number in sessions:
            await use_again(number)
        # A heartbeat or a new watch may come meanwhile, but no request for each run.
        assert await requests_so_far(service) - before < TOGETHER / 2
    await until(lambda: not cluster.list_namespaced_pod(namespace).items, 30)


async def test_no_more_pods_start_at_a_time_than_the_profile_allows(
    serving: Serving, cluster: Any, namespace: str
) -> None:
    seen: list[int] = []

    def starting() -> int:
        pods = cluster.list_namespaced_pod(namespace).items
        return sum(pod.status.phase == "Pending" for pod in pods)

    async with serving({"starting": 2}, sessions={"max": 8}, pool={"min": 0, "max": 8}) as service:
        done = anyio.Event()

        async def look() -> None:
            while not done.is_set():
                seen.append(await anyio.to_thread.run_sync(starting))

        async def use() -> None:
            assert (await execute(service, "echo x", language="bash")).stdout.text == "x\n"

        async with anyio.create_task_group() as looking:
            looking.start_soon(look)
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for _ in range(6):
                        tasks.start_soon(use)
            done.set()
    assert max(seen) == 2
