"""How fast LLM Sandbox is compared with this server, in turn, on the same engine and image.

Run `pip install -e '.[rival]'` first.
"""

import importlib.metadata
import importlib.util
import io
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import docker
from mcp import Client, StdioServerParameters

from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.containers.engines import profile_file
from tests.engines import docker_host, host_folder, small_profile

RUNS = 10
ROUNDS = 2
"""Each round takes half a minute with LLM Sandbox."""
CALLS = 2
_OURS = "llm-sandbox-mcp-python"
# LLM Sandbox starts the image's command and installs as root; our images have no command and an ordinary user.
_THEIRS = f'FROM {_OURS}\nUSER root\nCMD ["sleep", "infinity"]\n'


@contextmanager
def their_image(client: docker.DockerClient, name: str) -> Iterator[str]:
    """Builds our image plus what LLM Sandbox needs, under its image name; removes it at the end of the scope."""
    client.images.build(fileobj=io.BytesIO(_THEIRS.encode()), tag=name, rm=True, forcerm=True)
    try:
        yield name
    finally:
        client.images.remove(name, force=True)


class Times:
    """Seconds of each action."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Measures the scope as one action."""
        start = time.perf_counter()
        yield
        self.seconds.setdefault(what, []).append(time.perf_counter() - start)


def their_session(client: docker.DockerClient, image: str, times: Times) -> None:
    """Opens a session of LLM Sandbox, runs code in it and closes it."""
    from llm_sandbox import SandboxSession

    session = SandboxSession(client=client, image=image, lang="python")
    with times.of("open"):
        session.open()
    for _ in range(RUNS):
        with times.of("run"):
            assert session.run("print(1)").stdout == "1\n"
    with times.of("close"):
        session.close()


async def our_session(service: Service, times: Times) -> None:
    """The same with this server; a session opens with its first run."""
    with times.of("open"):
        session = (await execute(service, "print(1)")).session_id
    for _ in range(RUNS):
        with times.of("run"):
            assert (await execute(service, "print(1)", session_id=session)).stdout.text == "1\n"
    with times.of("close"):
        await service.sessions.close(session)


async def mcp_calls(argv: list[str], environment: dict[str, str], times: Times) -> None:
    """Calls `execute_code` several times, each time without a session of the previous call."""
    server = StdioServerParameters(command=sys.executable, args=argv, env={**os.environ, **environment})
    async with Client(server, read_timeout_seconds=120) as client:
        for _ in range(CALLS):
            with times.of("one MCP call"):
                result = await client.call_tool("execute_code", {"code": "print(6 * 7)"})
            assert "42" in str(result.content), result


def print_table(ours: Times, theirs: Times) -> None:
    """Prints a line for each action."""
    print(f"{'p50 ms':44}{'LLM Sandbox':>12}{'ours':>12}{'faster':>10}")
    for what, seconds in theirs.seconds.items():
        their, our = statistics.median(seconds), statistics.median(ours.seconds[what])
        print(f"{what:44}{their * 1000:12.2f}{our * 1000:12.2f}{their / our:9.0f}x")


async def main() -> None:
    """Measures both, one session of each in turn."""
    host = docker_host()
    if importlib.util.find_spec("llm_sandbox") is None or host is None:
        print("LLM Sandbox: not compared; run pip install -e '.[rival]' and python -m tests.engines up first")
        return
    from llm_sandbox.const import DefaultImage

    print(f"LLM Sandbox {importlib.metadata.version('llm-sandbox')} on the same Docker engine and image")
    ours, theirs = Times(), Times()
    client: Any = docker.DockerClient(base_url=host, timeout=60)
    # Under this name, because the image of its MCP server cannot be configured.
    with host_folder() as folder, their_image(client, DefaultImage.PYTHON) as image:
        async with open_service(small_profile("docker", folder)) as service:
            await service.warm()
            for _ in range(ROUNDS):
                await anyio.to_thread.run_sync(their_session, client, image, theirs)
                await our_session(service, ours)
        await mcp_calls(["-m", "llm_sandbox.mcp_server.server"], {"BACKEND": "docker", "DOCKER_HOST": host}, theirs)
        profile = profile_file("docker", host, Path(folder))
        await mcp_calls(["-m", "llm_sandbox_mcp", "--profile", str(profile)], {}, ours)
    client.close()
    print_table(ours, theirs)


if __name__ == "__main__":
    anyio.run(main)
