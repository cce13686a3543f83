"""The first result with pandas of a new session from the pool, on each engine, beside a run in a live session."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import docker_host, host_folder, kubeconfig, podman_host, small_profile

from .fresh import PANDAS, PREPARED
from .speed import row

ROUNDS = 15
RUNS = 10
"""Runs in a live session, in each round."""


async def measure(service: Service) -> tuple[list[float], list[float]]:
    """Seconds to the first result of sessions whose interpreter had time to import pandas, and of runs, in turn."""
    await service.warm(["python"])
    live = (await execute(service, f"{PREPARED}x = 0")).session_id
    ours, floor = list[float](), list[float]()
    for _ in range(ROUNDS):
        await service.pool_until(lambda pool: pool.warm == 1 and not pool.warming and not pool.closing)
        await anyio.sleep(1.0)  # longer than the pool waits before it imports anything
        await service.pool_until(lambda pool: pool.warm == 1 and not pool.warming)
        for code, session, times in (*[("x += 1", live, floor)] * RUNS, (PANDAS, "", ours)):
            start = time.perf_counter()
            ran = await execute(service, code, session_id=session)
            times.append(time.perf_counter() - start)
            assert ran.status == "ok", ran
            if not session:
                await service.sessions.close(ran.session_id)
    return ours, floor


@asynccontextmanager
async def served(backend: str) -> AsyncIterator[Service]:
    """A service with Python's default libraries that keeps one sandbox warm."""
    with host_folder() as folder:
        profile = load_profile()
        if backend != "embedded":
            profile = small_profile(backend, folder, handlers={"folders": ()}, limits={"memory": 1 << 30})
        pool = profile.pool.model_copy(update={"min": 1, "stock": 0, "languages": ("python",)})
        async with open_service(profile.model_copy(update={"pool": pool})) as service:
            yield service


async def main() -> None:
    """Measures every engine for tests that runs."""
    engines = {"embedded": True, "docker": docker_host(), "podman": podman_host(), "kubernetes": kubeconfig()}
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    for backend in (name for name, there in engines.items() if there):
        async with served(backend) as service:
            ours, floor = await measure(service)
        row(f"{backend}: a run in a live session", floor)
        row("first result with pandas, from the pool", ours, floor, "<= 2x" if backend != "embedded" else "")


if __name__ == "__main__":
    anyio.run(main)
