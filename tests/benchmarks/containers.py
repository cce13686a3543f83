"""How fast containers are: each figure next to that of the engine alone, measured in turn in one run."""

import io
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial

import anyio
import anyio.to_thread
import docker

from llm_sandbox_mcp.backends import copying
from llm_sandbox_mcp.backends.archive import Member
from llm_sandbox_mcp.backends.layout import WORKDIR
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_backend, open_service
from tests.engines import MIB, docker_host, host_folder, podman_host, small_profile, surroundings

from .speed import row

RUNS = 200
EXECS = 20
OPENS = 10
TOGETHER = 50
ROOM = {"sessions": {"max": TOGETHER}, "pool": {"min": 0, "max": TOGETHER}}
COPIES = 3
SIZE = 100_000_000
_PART = 1 << 18
_IMAGE = "llm-sandbox-mcp-python"
WITHIN = {"docker": 1, "podman": 2}
"""How many times as long as on Docker something is allowed to take."""
_LINE = b"x" * 100 + b"\n"


@contextmanager
def bare_container(api: docker.APIClient, command: list[str]) -> Iterator[str]:
    """A container with the default settings of the engine, plus an init so that it ends at once."""
    host = api.create_host_config(init=True)
    made = api.create_container(_IMAGE, command=command, network_disabled=True, stdin_open=True, host_config=host)["Id"]
    try:
        api.start(made)
        yield made
    finally:
        api.remove_container(made, force=True)


def bare_starts(api: docker.APIClient) -> tuple[list[float], list[float]]:
    """Seconds to create and start a container, and to remove it, with the client library of the engine."""
    starts, removals = [], []
    for _ in range(OPENS):
        start = time.perf_counter()
        with bare_container(api, ["sleep", "1000"]):
            starts.append(time.perf_counter() - start)
            start = time.perf_counter()
        removals.append(time.perf_counter() - start)
    return starts, removals


def bare_attach(api: docker.APIClient) -> list[float]:
    """Seconds for a line to a running process and back, over the attached stream of the engine."""
    times = []
    with bare_container(api, ["cat"]) as container:
        stream = api.attach_socket(container, {"stdin": 1, "stdout": 1, "stream": 1})
        # The library returns a wrapper of the socket, or the socket itself, depending on the kind of address.
        wire = getattr(stream, "_sock", stream)
        for _ in range(RUNS):
            start = time.perf_counter()
            wire.sendall(_LINE)
            answer = b""
            while not answer.endswith(_LINE):
                answer += wire.recv(_PART)
            times.append(time.perf_counter() - start)
        stream.close()
        api.close()  # also closes the response of the stream
    return times


def bare_copies(api: docker.APIClient, data: bytes) -> tuple[float, float]:
    """The best MB/s of a file into a container and out of it, with the client library of the engine."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        member = tarfile.TarInfo("file")
        member.size = len(data)
        packed.addfile(member, io.BytesIO(data))
    speeds = []
    with bare_container(api, ["sleep", "1000"]) as container:
        for _ in range(COPIES):
            times = [time.perf_counter()]
            api.put_archive(container, "/var/tmp", archive.getvalue())
            times.append(time.perf_counter())
            got = b"".join(api.get_archive(container, "/var/tmp/file")[0])
            with tarfile.open(fileobj=io.BytesIO(got)) as unpacked:
                content = unpacked.extractfile("file")
                assert content is not None and content.read() == data
            times.append(time.perf_counter())
            speeds.append(tuple(len(data) / 1e6 / (times[at + 1] - times[at]) for at in (0, 1)))
    into, out = zip(*speeds, strict=True)
    return max(into), max(out)


def bare_exec(api: docker.APIClient, container: str) -> float:
    """Seconds for what `docker exec python3 -c pass` does, with the client library of the engine."""
    start = time.perf_counter()
    api.exec_start(api.exec_create(container, ["python3", "-c", "pass"])["Id"])
    return time.perf_counter() - start


async def stateful(service: Service, api: docker.APIClient) -> tuple[list[float], list[float]]:
    """Seconds of each run of one statement in a live session, and of a bare exec, in turn."""
    session = (await execute(service, "x = 0")).session_id
    ours, floor = [], []
    with bare_container(api, ["sleep", "1000"]) as container:
        for number in range(RUNS):
            start = time.perf_counter()
            await execute(service, "x += 1", session_id=session)
            ours.append(time.perf_counter() - start)
            if number % (RUNS // EXECS) == 0:
                floor.append(await anyio.to_thread.run_sync(partial(bare_exec, api, container)))
    await service.sessions.close(session)
    return ours, floor


async def pooled(service: Service) -> list[float]:
    """Seconds to the first result of new sessions; each one starts when a sandbox is warm."""
    await service.warm()
    times = []
    for _ in range(OPENS):
        await service.pool_until(lambda pool: pool.warm == 1 and pool.closing == 0)
        start = time.perf_counter()
        session = await execute(service, "print(1)")
        times.append(time.perf_counter() - start)
        await service.sessions.close(session.session_id)
    return times


async def opened(service: Service, count: int, *, together: bool) -> tuple[list[float], list[float], list[float]]:
    """Seconds to the first result of new sessions; then, from the start of closing, until that call returns, and until
    the container is gone."""
    opens: list[float] = []
    closes: list[float] = []
    ends: list[float] = []
    sessions: list[str] = []

    async def one() -> None:
        start = time.perf_counter()
        sessions.append((await execute(service, "print(1)")).session_id)
        opens.append(time.perf_counter() - start)

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            if together:
                tasks.start_soon(one)
            else:
                await one()
    for session in sessions:
        start = time.perf_counter()
        await service.sessions.close(session)
        closes.append(time.perf_counter() - start)
        await service.pool_until(lambda pool: pool.closing == 0)
        ends.append(time.perf_counter() - start)
    return opens, closes, ends


async def copies(backend: str, data: bytes) -> tuple[float, float]:
    """The best MB/s of a file into a sandbox and out of it."""

    async def content() -> AsyncIterator[bytes]:
        for at in range(0, len(data), _PART):
            yield data[at : at + _PART]

    async def take(member: Member) -> None:
        assert bytes(member.content) == data

    speeds = []
    with host_folder() as folder:
        profile = small_profile(backend, folder, limits={"disk": 400 * MIB, "memory": 2048 * MIB, "cpus": 2.0})
        async with (
            open_backend(profile, surroundings(folder)) as engine,
            engine.sandbox(profile.limits.policy()) as sandbox,
        ):
            for _ in range(COPIES):
                times = [time.perf_counter()]
                await copying.copy_in(sandbox, "file", len(data), content)
                times.append(time.perf_counter())
                await copying.copy_out(sandbox, WORKDIR, ["file"], 2 * SIZE, take)
                times.append(time.perf_counter())
                speeds.append((len(data) / 1e6 / (times[1] - times[0]), len(data) / 1e6 / (times[2] - times[1])))
    into, out = zip(*speeds, strict=True)
    return max(into), max(out)


async def measure(backend: str, host: str) -> None:
    """Prints the figures of one engine."""
    times = WITHIN[backend]
    print(f"{backend:44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    api = docker.APIClient(base_url=host, version="1.41")
    with host_folder() as folder:
        async with open_service(small_profile(backend, folder, **ROOM)) as service:
            ours, floor = await stateful(service, api)
            row("exec python3 -c pass (floor)", floor)
            row("stateful run", ours, floor, f"<= {3 * times} ms, <= {0.05 * times:g}x")
            row("a line to a process and back (floor)", await anyio.to_thread.run_sync(bare_attach, api))
            starts, removals = await anyio.to_thread.run_sync(bare_starts, api)
            opens, closes, ends = await opened(service, OPENS, together=False)
            row("create and start (floor)", starts)
            row("open and first result, no pool", opens, starts)
            row("remove (floor)", removals)
            row("close, as the caller sees it", closes, removals, f"<= {150 * times} ms")
            row("close, until the container is gone", ends, removals, f"<= {150 * times} ms")
            opens, *_ = await opened(service, TOGETHER, together=True)
            row(f"{TOGETHER} sessions opened at once", opens)
            print(f"  the last one after {max(opens):.1f} s")
        async with open_service(small_profile(backend, folder, pool={"min": 1, "max": 4})) as service:
            row("first result, from the pool", await pooled(service), starts, f"<= {15 * times} ms")
    data = bytes(range(256)) * (SIZE // 256)
    for what, (into, out), promise in (
        ("copy of 100 MB by the engine (floor)", await anyio.to_thread.run_sync(bare_copies, api, data), ""),
        ("copy of 100 MB", await copies(backend, data), f">= {100 / times:g} MB/s"),
    ):
        print(f"{what:44}in {into:.0f} MB/s, out {out:.0f} MB/s  {promise}")
    api.close()


async def main() -> None:
    """Measures every running test engine."""
    for backend, host in (("docker", docker_host()), ("podman", podman_host())):
        if host is None:
            print(f"{backend}: not running; start it with python -m tests.engines up")
        else:
            await measure(backend, host)


if __name__ == "__main__":
    anyio.run(main)
