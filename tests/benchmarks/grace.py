"""How well the grace after an interrupt works: code that ignores it is soon dead, other code keeps its state."""

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import docker_host, host_folder, kubeconfig, podman_host, small_profile

from .speed import row

KILLS = 10
ANSWERS = 50
LOADS = (0, 4, 20)
"""Numbers of busy loops that run at the same time as the code, with normal priority."""
TIMEOUT = 0.5
_LOOK = 0.002
_DEAF = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print('deaf', flush=True)
os.execv('/bin/sleep', ['sleep', '{mark}'])
"""


def end_of(mark: str) -> float:
    """Waits until no process has this word in its command line; returns the time. To be called in a thread."""
    while lives(mark):
        time.sleep(_LOOK)
    return time.perf_counter()


def lives(mark: str) -> bool:
    """Whether a process on this machine has this word in its command line."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in command.read_text():
                return True
        except OSError:
            pass  # it has just ended
    return False


async def killed(service: Service) -> tuple[float, float]:
    """Seconds from the end of the grace until code that ignores interrupts is dead, and until its run is answered."""
    session = (await execute(service, "kept = 1")).session_id
    mark = str(10**9 + secrets.randbelow(10**9))
    began, dead = 0.0, 0.0

    async def watch() -> None:
        nonlocal dead
        assert lives(mark), "the code does not run on this machine, or has already ended"
        dead = await anyio.to_thread.run_sync(end_of, mark)

    async with anyio.create_task_group() as tasks:

        async def deaf(_stream: str, _text: str) -> None:
            await anyio.sleep(TIMEOUT / 2)
            tasks.start_soon(watch)

        began = time.perf_counter()
        done = await execute(service, _DEAF.format(mark=mark), session_id=session, timeout=TIMEOUT, on_output=deaf)
        answered = time.perf_counter()
        assert (done.status, done.session_state) == ("timeout", "fresh"), done
    await service.sessions.close(session)
    due = began + TIMEOUT + service.profile.limits.grace
    return dead - due, answered - due


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Runs so many processes that use all the processor time they get."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


async def answered(service: Service) -> tuple[int, list[float]]:
    """How many timeouts of endless loops keep the state, and the seconds that each answer took after its timeout."""
    session = (await execute(service, "kept = 42")).session_id
    kept, times = 0, []
    for _ in range(ANSWERS):
        done = await execute(service, "while True: pass", session_id=session, timeout=TIMEOUT)
        times.append(done.duration - TIMEOUT)
        kept += done.session_state == "kept"
    assert kept < ANSWERS or (await execute(service, "kept", session_id=session)).result == "42"
    return kept, times


async def measure(backend: str) -> None:
    """Prints the figures of one backend."""
    grace = load_profile().limits.grace
    print(f"{f'{backend}, grace {grace:g} s':44}{'p50 ms':>9}{'p10 .. p90':>22}{'':>9}  promised")
    with host_folder() as folder:
        async with open_service(small_profile(backend, folder)) as service:
            kills = [await killed(service) for _ in range(KILLS)]
            row("dead after the grace", [dead for dead, _ in kills], promise="<= 300 ms")
            row("answered after the grace", [done for _, done in kills], promise="<= 300 ms")
            for count in LOADS:
                with busy(count):
                    kept, times = await answered(service)
                row(f"interrupt answered, {count} busy loops", times, promise=f"< {grace * 1000:g} ms")
                print(f"  state kept in {kept} of {ANSWERS} runs, slowest answer {max(times) * 1000:.0f} ms")


async def main() -> None:
    """Measures embedded and every running test engine; the node of a cluster must be this machine."""
    engines = {"embedded": True, "docker": docker_host(), "podman": podman_host(), "kubernetes": kubeconfig()}
    for backend, runs in engines.items():
        if runs:
            await measure(backend)
        else:
            print(f"{backend}: not running; start it with python -m tests.engines up")


if __name__ == "__main__":
    anyio.run(main)
