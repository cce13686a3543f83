"""How fast pods are, compared with `kubectl exec`, measured in turn in one run; needs KUBECONFIG."""

import os
import re
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from llm_sandbox_mcp.backends.kubernetes.api import Api
from llm_sandbox_mcp.backends.kubernetes.backend import PodBackend
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.cluster.forwarding import forwarded
from tests.engines import host_folder, kubeconfig, small_profile

from .speed import row

RUNS = 200
EXECS = 10
OPENS = 10
TOGETHER = 40


def bare_exec(pod: str, namespace: str) -> float:
    """Seconds for `kubectl exec POD -- python3 -c pass`."""
    argv = ["kubectl", "--kubeconfig", str(kubeconfig()), "-n", namespace, "exec", pod, "--", "python3", "-c", "pass"]
    start = time.perf_counter()
    subprocess.run(argv, check=True)
    return time.perf_counter() - start


async def stateful(service: Service, api: Api) -> tuple[list[float], list[float], int]:
    """Seconds of runs of one statement in a live session, seconds of bare execs in turn, and API calls of the runs."""
    path = f"/api/v1/namespaces/{api.namespace}/pods"
    session = (await execute(service, "x = 0")).session_id
    pod = (await api.call("GET", path))["items"][0]["metadata"]["name"]
    ours, floor = [], []
    before = api.calls
    for number in range(RUNS):
        start = time.perf_counter()
        await execute(service, "x += 1", session_id=session)
        ours.append(time.perf_counter() - start)
        if number % (RUNS // EXECS) == 0:
            floor.append(await anyio.to_thread.run_sync(partial(bare_exec, pod, api.namespace)))
    calls = api.calls - before
    await service.sessions.close(session)
    return ours, floor, calls


async def pooled(service: Service, api: Api) -> tuple[list[float], float]:
    """Seconds to the first result of new sessions, each started when a pod is warm, and API calls per session."""
    await service.warm()
    times = []
    await service.pool_until(lambda pool: pool.warm == 1 and pool.closing == 0 and pool.warming == 0)
    before = api.calls
    for _ in range(OPENS):
        start = time.perf_counter()
        session = await execute(service, "print(1)")
        times.append(time.perf_counter() - start)
        await service.sessions.close(session.session_id)
        await service.pool_until(lambda pool: pool.warm == 1 and pool.closing == 0 and pool.warming == 0)
    return times, (api.calls - before) / OPENS


async def together(service: Service) -> tuple[float, float, float]:
    """Seconds until many sessions that are opened at once have all answered; bytes and descriptors per session."""

    async def one() -> None:
        assert (await execute(service, "print(1)")).stdout.text == "1\n"

    before, open_before = memory(), len(os.listdir("/proc/self/fd"))
    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(TOGETHER):
            tasks.start_soon(one)
    seconds = time.perf_counter() - start
    more = len(os.listdir("/proc/self/fd")) - open_before
    return seconds, (memory() - before) / TOGETHER, more / TOGETHER


def memory() -> int:
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@dataclass
class Wire:
    """Bytes that were sent to the cluster and received from it, on the wire."""

    sent: int = 0
    received: int = 0
    server: str = ""
    """A kubeconfig that leads to the cluster through the counting port."""


@asynccontextmanager
async def counted() -> AsyncIterator[Wire]:
    """Opens a port on this machine that forwards connections to the cluster and counts their bytes."""
    address = re.search(r"server: *\"?(https://([^:/]+):(\d+))", Path(kubeconfig() or "").read_text())
    assert address is not None, "KUBECONFIG names no port"
    wire = Wire()

    def sent(count: int) -> None:
        wire.sent += count

    def received(count: int) -> None:
        wire.received += count

    async with forwarded("127.0.0.1", address[2], int(address[3]), sent, received) as port:
        wire.server = Path(kubeconfig() or "").read_text().replace(address[1], f"https://127.0.0.1:{port}")
        yield wire


async def traffic(service: Service, wire: Wire) -> tuple[float, float, float]:
    """Bytes sent, bytes received and API calls for each session with one run, including the watch of its pod."""
    api = await connected(service)
    await execute(service, "print(1)", keep_session=False)
    before = wire.sent, wire.received, api.calls
    for _ in range(OPENS):
        await execute(service, "print(1)", keep_session=False)
    return (wire.sent - before[0]) / OPENS, (wire.received - before[1]) / OPENS, (api.calls - before[2]) / OPENS


async def connected(service: Service) -> Api:
    """The connection of the service's backend to the cluster."""
    backend = await service.backend.chosen()
    assert isinstance(backend, PodBackend)
    return await backend.connected()


async def main() -> None:
    """Measures the cluster that KUBECONFIG names."""
    if kubeconfig() is None:
        print("kubernetes: not measured; KUBECONFIG names no cluster")
        return
    print(f"{'kubernetes':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    with host_folder() as folder:
        room = {"sessions": {"max": TOGETHER}, "pool": {"min": 0, "max": TOGETHER}}
        async with open_service(small_profile("kubernetes", folder, **room)) as service:
            ours, floor, calls = await stateful(service, await connected(service))
            row("kubectl exec python3 -c pass (floor)", floor)
            row("stateful run", ours, floor, "<= 8 ms, <= 0.07x")
            print(f"  calls of the cluster's API for these runs: {calls} (promised: 0)")
            seconds, size, descriptors = await together(service)
            print(f"{TOGETHER} sessions opened at once: all answered after {seconds:.1f} s")
            print(f"  the server uses {size / 1000:.0f} kB and {descriptors:.1f} descriptors for each")
        async with open_service(small_profile("kubernetes", folder, pool={"min": 1, "max": 4})) as service:
            times, each = await pooled(service, await connected(service))
            row("first result, from the pool", times, promise="<= 60 ms")
            print(f"  calls of the cluster's API for each session: {each:.1f} (promised: <= 4)")
        async with counted() as wire:
            seen = folder / "counted"
            seen.write_text(wire.server)
            through = small_profile("kubernetes", folder, kubernetes={"kubeconfig": str(seen)})
            async with open_service(through) as service:
                sent, received, calls_each = await traffic(service, wire)
            print(f"a session with one run: {calls_each:.1f} calls, {sent:,.0f} bytes sent, {received:,.0f} received")


if __name__ == "__main__":
    anyio.run(main)
