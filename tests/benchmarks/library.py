"""How fast a program for LLM Sandbox is with its own package and with this one, in turn, with the same code.

Run `pip install -e '.[rival]'` first; without that package, only the cost of our own calls is printed. Each line shows
what is promised and whether it was kept. Both packages have done everything once before they are measured.
"""

import functools
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
from llm_sandbox_mcp import (
    ArtifactSandboxSession,
    InteractiveSandboxSession,
    PoolConfig,
    Sandboxes,
    SandboxSession,
    Session,
    create_pool_manager,
)
from llm_sandbox_mcp.compat.llm_sandbox.portal import portal
from tests.benchmarks.llm_sandbox import their_image
from tests.engines import docker_host, host_folder

WHOLE = 3
"""Sessions of each package for the measurement of whole sessions; the slowest of theirs takes five seconds."""
RUNS = 20
CALLS = 150
UP = 0.1
"""Seconds for an interpreter to start; a program would do something else meanwhile."""
OVERHEAD = 0.0003
"""Seconds that a blocking call is allowed to take longer than the async call."""
HEAD = "{:58}{:>12}{:>10}{:>10}   promised"
PROFILE = """\
[limits]
timeout = "1d"
[sessions]
starts_per_second = 1000.0
[languages.python]
libraries = []
[server]
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
    """The median seconds of several runs in one session."""
    with package.SandboxSession(lang="python", **arguments) as session:
        return statistics.median(timed(lambda: session.run("print(1)")) for _ in range(RUNS))


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def verdict(kept: bool) -> str:
    """Whether a promise was kept, in one word."""
    return "kept" if kept else "MISSED"


def compare(what: str, measure: Callable[..., float], theirs: Any, ours: Any, promised: float, rounds: int) -> None:
    """Prints a line: both medians, measured in turn, and whether their ratio is at most the promised one."""
    import llm_sandbox

    seconds: tuple[list[float], list[float]] = [], []
    for number in range(rounds + 1):
        their, our = measure(llm_sandbox, **theirs), measure(llm_sandbox_mcp, **ours)
        if number:  # the first round includes what a process does only once
            seconds[0].append(their)
            seconds[1].append(our)
    their, our = map(statistics.median, seconds)
    kept = verdict(our / their <= promised)
    print(
        f"{what:58}{their * 1000:12.1f}{our * 1000:10.1f}{our / their:9.3f}x   <= {promised:.3f}x: {kept}", flush=True
    )


def overhead() -> None:
    """Prints how much longer `run` of each kind of session takes than `Session.run` of the async API, same time limit.

    Both run one line with our own runner, because the cost of IPython is not a cost of blocking. They use a fresh
    interpreter, or a kept one for an interactive session. The async call is measured inside the event loop. Everything
    that `run` does is included: waiting for threads, exit functions, options, callbacks and figures.
    """
    print(HEAD.format("p50 in ms, in turn", "async", "blocking", ""))
    kinds: dict[str, Callable[[], SandboxSession]] = {
        "SandboxSession.run": SandboxSession,
        "ArtifactSandboxSession.run": ArtifactSandboxSession,
        "InteractiveSandboxSession.run": functools.partial(InteractiveSandboxSession, kernel_type="runner"),
    }
    sandboxes = portal.enter(Sandboxes(os.environ["LLM_SANDBOX_PROFILE"]))
    for what, kind in kinds.items():
        held = portal.enter(sandboxes.value.session())
        with kind() as session:
            figures = beyond(session, held.value, fresh=kind is not kinds["InteractiveSandboxSession.run"])
        held.leave()
        print(f"{what:58}{figures}", flush=True)
    sandboxes.leave()


def beyond(blocking: SandboxSession, asynchronous: Session, *, fresh: bool) -> str:
    """The medians of runs in two sessions, measured in turn, and their difference, as text."""
    limit = blocking.options.default_timeout

    async def in_the_loop() -> float:
        start = time.perf_counter()
        await asynchronous.run("1", timeout=limit)
        return time.perf_counter() - start

    seconds: tuple[list[float], list[float]] = [], []
    for number in range(CALLS):
        if fresh:
            portal.call(asynchronous.refresh)  # the blocking session does this itself
            time.sleep(UP)
        turns = [lambda: portal.call(in_the_loop), lambda: timed(lambda: blocking.run("1"))]
        for at in (0, 1) if number % 2 else (1, 0):
            seconds[at].append(turns[at]())
    floor, ours = map(statistics.median, seconds)
    kept = verdict(ours - floor <= OVERHEAD)
    return (
        f"{floor * 1000:12.3f}{ours * 1000:10.3f}{(ours - floor) * 1000:+10.3f}   <= {OVERHEAD * 1000:.3f} ms: {kept}"
    )


def main() -> None:
    """Measures what can be measured here."""
    with host_folder() as folder:
        file = Path(folder, "profile.toml")
        host = docker_host()
        file.write_text(PROFILE.format(folder=folder, host=host or ""))
        os.environ["LLM_SANDBOX_PROFILE"] = str(file)
        overhead()
        if importlib.util.find_spec("llm_sandbox") is None:
            print("LLM Sandbox: not compared; run pip install -e '.[rival]' first")
            return
        print(f"LLM Sandbox {importlib.metadata.version('llm-sandbox')}: p50 in ms, in turn")
        print(HEAD.format("", "LLM Sandbox", "ours", ""))
        local: dict[str, Any] = {"backend": "bubblewrap"}
        skipped = {**local, "skip_environment_setup": True}
        compare("bubblewrap: with SandboxSession, one run", whole, local, local, 1 / 20, WHOLE)
        compare("the same, its environment set-up is skipped", whole, skipped, local, 1, RUNS)
        compare("a run in an open session, set-up skipped", runs, skipped, local, 1, WHOLE)
        if host is None:
            print("docker: not running; start it with python -m tests.engines up docker")
        else:
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
