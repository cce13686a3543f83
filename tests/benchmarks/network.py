"""What the proxy costs: a download from loopback, from inside a sandbox through the proxy, and outside without it."""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from llm_sandbox_mcp.profile.profile import Profile, load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import docker_host, host_folder, kubeconfig, podman_host, small_profile

SIZE = 50_000_000
ROUNDS = 15
PROMISE = {**dict.fromkeys(("embedded", "docker", "podman"), ">= 70 %"), "kubernetes": "no promise: over its API"}

CLIENT = """
import http.client, time
def download(port, proxy):
    start = time.perf_counter()
    if proxy:
        connection = http.client.HTTPConnection('127.0.0.1', proxy)
        connection.set_tunnel('127.0.0.1', port)
    else:
        connection = http.client.HTTPConnection('127.0.0.1', port)
    connection.request('GET', '/')
    answer, buffer, got = connection.getresponse(), bytearray(1 << 20), 0
    while count := answer.readinto(buffer):
        got += count
    assert got == SIZE, got
    return time.perf_counter() - start
"""
"""The program on both sides: it measures how long one download takes, including the connection."""


SERVER = """
import socket
content = bytes(SIZE)
with socket.create_server(('127.0.0.1', 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    while True:
        connection, _ = listening.accept()
        with connection:
            while b'\\r\\n\\r\\n' not in connection.recv(1 << 16):
                pass
            connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % SIZE)
            connection.sendall(content)
"""


@contextmanager
def serving() -> Iterator[int]:
    """The port of a server in a separate process, which sends from memory."""
    program = SERVER.replace("SIZE", str(SIZE))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def direct(port: int) -> float:
    """Seconds of one download by the system's Python, outside."""
    program = CLIENT.replace("SIZE", str(SIZE)) + f"download({port}, 0)\nprint(download({port}, 0))"
    done = subprocess.run(["/usr/bin/python3", "-c", program], capture_output=True, check=True)
    return float(done.stdout)


async def proxied(service: Service, session: str, port: int) -> float:
    """Seconds of one download by the system's Python, in a sandbox, through the proxy."""
    program = CLIENT.replace("SIZE", str(SIZE)) + f"download({port}, 3128)\nprint(download({port}, 3128))"
    ran = await execute(service, f'/usr/bin/python3 -c "{program}"', language="bash", session_id=session)
    assert ran.status == "ok", ran
    return float(ran.stdout.text)


async def measured(profile: Profile) -> tuple[float, float]:
    """Bytes per second without the proxy and through it: medians of downloads that were made in turn."""
    with serving() as port:
        network = profile.network.model_copy(update={"mode": "allow", "domains": (f"127.0.0.1:{port}",)})
        ours, floor = [], []
        async with open_service(profile.model_copy(update={"network": network})) as service:
            session = (await execute(service, "true", language="bash")).session_id
            for _ in range(ROUNDS):
                floor.append(await anyio.to_thread.run_sync(direct, port))
                ours.append(await proxied(service, session, port))
    return SIZE / statistics.median(floor), SIZE / statistics.median(ours)


async def main() -> None:
    """Measures each backend that runs, and prints the figures."""
    default = load_profile()
    profiles = {"embedded": default.model_copy(update={"pool": default.pool.model_copy(update={"min": 0})})}
    with host_folder() as folder:
        for engine, host in (("docker", docker_host()), ("podman", podman_host()), ("kubernetes", kubeconfig())):
            if host is not None:
                profiles[engine] = small_profile(engine, folder, limits={"timeout": 120.0, "cpus": default.limits.cpus})
        for backend, profile in profiles.items():
            floor, ours = await measured(profile)
            print(
                f"{backend}: {SIZE // 1_000_000} MB direct: {floor / 1e6:.0f} MB/s; "
                f"through the proxy: {ours / 1e6:.0f} MB/s; {100 * ours / floor:.0f} %  {PROMISE[backend]}"
            )


if __name__ == "__main__":
    anyio.run(main)
