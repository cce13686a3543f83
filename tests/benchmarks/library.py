"""How fast a program of LLM Sandbox's is with its own package and with this one, in turn, by the same lines.

`pip install -e '.[rival]'` first; without it only what our own calls cost is printed.
"""

import importlib.metadata
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import docker

import llm_sandbox_mcp
from llm_sandbox_mcp import PoolConfig, Sandboxes, create_pool_manager
from llm_sandbox_mcp.blocking.portal import portal
from tests.benchmarks.llm_sandbox import their_image
from tests.engines import docker_host, host_folder

WHOLE = 3
"""Sessions of each that is measured whole; their slowest takes five seconds."""
RUNS = 20
CALLS = 300
PROFILE = """\
[limits]
timeout = "1d"
[sessions]
starts_per_second = 1000.0
[languages.python]
libraries = []
[embedded]
cache = "{folder}/cache"
runtime = "{folder}/runtime"
[docker]
host = "{host}"
"""


def whole(package: Any, **arguments: Any) -> float:
    """Seconds for a session that opens, runs one line and closes."""
    start = time.perf_counter()
    with package.SandboxSession(lang="python", **arguments) as session:
        assert session.run("print(1)").stdout == "1\n"
    return time.perf_counter() - start


def runs(package: Any, **arguments: Any) -> float:
    """The median of seconds for one run, of several in a session."""
    with package.SandboxSession(lang="python", **arguments) as session:
        return statistics.median(timed(lambda: session.run("print(1)")) for _ in range(RUNS))


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(what: str, measure: Callable[..., float], theirs: Any, ours: Any, promised: float, rounds: int) -> None:
    """Prints a line: both medians, each measured in turn."""
    import llm_sandbox

    seconds: tuple[list[float], list[float]] = [], []
    measure(llm_sandbox_mcp, **ours)  # what the process does once, its server would have done
    for _ in range(rounds):
        seconds[0].append(measure(llm_sandbox, **theirs))
        seconds[1].append(measure(llm_sandbox_mcp, **ours))
    their, our = map(statistics.median, seconds)
    print(f"{what:52}{their * 1000:12.1f}{our * 1000:10.1f}{our / their:9.3f}x   <= {promised:.3f}x")


def overhead() -> None:
    """Prints what a blocking call costs beyond the async one, measured in turn on one session."""
    sandboxes = Sandboxes(os.environ["LLM_SANDBOX_PROFILE"])
    held = portal.enter(sandboxes)
    session_held = portal.enter(held.value.session())
    session = session_held.value

    async def in_the_loop() -> float:
        start = time.perf_counter()
        await session.run("1")
        return time.perf_counter() - start

    blocking, asynchronous = [], []
    for _ in range(CALLS):
        blocking.append(timed(lambda: portal.call(session.run, "1")))
        asynchronous.append(portal.call(in_the_loop))
    session_held.leave()
    held.leave()
    ours, floor = (statistics.median(values) * 1000 for values in (blocking, asynchronous))
    print(f"one run: blocking {ours:.3f} ms, async {floor:.3f} ms, so {ours - floor:.3f} ms more   <= 0.3 ms")


def main() -> None:
    """Measures what can be measured here."""
    with host_folder() as folder:
        file = Path(folder, "profile.toml")
        host = docker_host()
        file.write_text(PROFILE.format(folder=folder, host=host or ""))
        os.environ["LLM_SANDBOX_PROFILE"] = str(file)
        overhead()
        if importlib.util.find_spec("llm_sandbox") is None:
            print("LLM Sandbox: not compared; pip install -e '.[rival]'")
            return
        print(f"LLM Sandbox {importlib.metadata.version('llm-sandbox')}: p50 in ms, in turn")
        print(f"{'':52}{'LLM Sandbox':>12}{'ours':>10}{'':>10}   promised")
        local: dict[str, Any] = {"backend": "bubblewrap"}
        skipped = {**local, "skip_environment_setup": True}
        compare("bubblewrap: with SandboxSession, one run", whole, local, local, 1 / 20, WHOLE)
        compare("the same, its environment set-up skipped", whole, skipped, local, 1, RUNS)
        compare("a run in an open session, set-up skipped", runs, skipped, local, 1, WHOLE)
        if host is not None:
            on_docker(host)
        portal.close()


def on_docker(host: str) -> None:
    """The same on Docker, with the same image and engine, and with a pool each."""
    from llm_sandbox.const import DefaultImage
    from llm_sandbox.pool import PoolConfig as TheirConfig
    from llm_sandbox.pool import create_pool_manager as their_pool

    with closing(docker.DockerClient(base_url=host, timeout=60)) as client, their_image(client, DefaultImage.PYTHON):
        arguments: dict[str, Any] = {"backend": "docker", "client": client}
        compare("docker: with SandboxSession, one run", whole, arguments, arguments, 1 / 10, WHOLE)
        theirs = their_pool(backend="docker", client=client, config=TheirConfig(min_pool_size=2, max_pool_size=4))
        ours = create_pool_manager(client, "docker", PoolConfig(min_pool_size=2, max_pool_size=4))
        with theirs, ours:
            compare("docker: pooled, one run", whole, {"pool": theirs}, {"pool": ours}, 1 / 5, RUNS)


if __name__ == "__main__":
    main()
