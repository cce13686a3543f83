"""Makes attacks on availability, one by one: when each attack ends, how it slows a neighbour, and what is left."""

import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf

import anyio

from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import docker_host, has_image, host_folder, kubeconfig, podman_host, small_profile
from tests.hostile.availability import ATTACKS, Attack
from tests.leftovers import System, beyond, look

from .grace import busy
from .speed import row

TIMEOUT = 1.0
GONE = 2.0
"""Seconds after which nothing of an attack may be left."""
QUIET = 3.0
"""Seconds to measure the neighbour without an attack."""
LATE, SLOW = 0.3, 0.05
"""Promised limits in seconds: how late an answer is after the grace; the 99th percentile of the neighbour's runs."""
PAUSE = 0.005
RUNS = 100
"""How many runs of the neighbour to measure at least during each attack: a 99th percentile needs a hundred. The attack
is repeated until then."""
LOADS = (0, 1, 2)
"""Busy loops on this machine that run at the same time as the neighbour, without any attack."""
CHANGES: Mapping[str, Mapping[str, object]] = {
    "artifacts": {"files": 100, "store": 16 << 20},
    "limits": {"file_size": 8 << 20},
}
"""Changes to the small profile, so that after a run more files are collected and searched for."""
_NOTHING = {"python": "0", "javascript": "0", "bash": ":"}


@dataclass
class Neighbour:
    """The session of another user, which makes one trivial run after the other."""

    service: Service
    session: str
    number: int = 4711
    wrong: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[list[float]]:
        """Runs code while the scope lasts; yields the seconds of each run, counted from when the run was due."""
        times: list[float] = []
        over = False

        async def work() -> None:
            due, last = time.perf_counter(), False
            while not last:
                await anyio.sleep(max(0.0, due - time.perf_counter()))
                # One more run begins after the end of the scope; otherwise a delay of its start would not be counted.
                last = over
                answer = await self._answer()
                now = time.perf_counter()
                times.append(now - due)
                due = now + PAUSE
                if answer != f"ok {self.number}":
                    self.wrong.append(answer)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            try:
                yield times
            finally:
                over = True

    async def _answer(self) -> str:
        try:
            run = await execute(self.service, "number", session_id=self.session)
        except SandboxError as error:
            return str(error)
        return f"{run.status} {run.result}"


@dataclass(frozen=True)
class Outcome:
    """The result of one attack."""

    status: str
    seconds: float
    late: float
    """Seconds after timeout and grace."""
    neighbour: list[float]
    left: dict[str, list[str]]


async def repeated(neighbour: Neighbour, attack: Attack, state: Callable[[], System]) -> Outcome:
    """Repeats the attack until there are enough runs of the neighbour; returns the worst result."""
    done = await attacked(neighbour, attack, state)
    while len(done.neighbour) < RUNS and not done.left:
        more = await attacked(neighbour, attack, state)
        worse = max(done, more, key=lambda outcome: outcome.late)
        done = replace(worse, neighbour=done.neighbour + more.neighbour, left=more.left)
    return done


async def attacked(neighbour: Neighbour, attack: Attack, state: Callable[[], System]) -> Outcome:
    """Makes the attack in a new session, and waits for a limited time until nothing of it is left."""
    service, due = neighbour.service, TIMEOUT + neighbour.service.profile.limits.grace
    before = state()
    session = (await execute(service, _NOTHING[attack.language], language=attack.language)).session_id
    # This call learns what belongs to the sandbox, so that it is found later even if the attack ends the sandbox.
    state()
    async with neighbour.working() as times:
        start = time.perf_counter()
        try:
            run = await execute(service, attack.code, language=attack.language, session_id=session, timeout=TIMEOUT)
            status = f"{run.status}, {run.session_state}"
        except SandboxError as error:
            status = type(error).__name__
        seconds = time.perf_counter() - start
        if attack.lasts:
            await anyio.sleep(max(0.0, due - seconds))
        if session in {info.id for info in service.sessions.list()}:
            await service.sessions.close(session)
        with anyio.move_on_after(GONE):
            await service.pool_until(lambda pool: not pool.closing)
    return Outcome(status, seconds, max(0.0, seconds - due), times, await beyond(before, state, GONE))


def percentile(times: list[float], share: float) -> float:
    """The time within which this share of the runs ended."""
    return sorted(times)[ceil(len(times) * share) - 1]


def line(
    name: str, times: list[float], status: str = "", seconds: float = inf, late: float = 0, left: str = ""
) -> None:
    """Prints the figures of one attack, or of a measurement without an attack."""
    took = f"{seconds:7.2f}" if seconds < inf else ""
    after = f"{late * 1000:.0f}" if late else ""
    figures = "".join(f"{percentile(times, share) * 1000:8.1f}" for share in (0.5, 0.99, 1))
    print(f"{name[:44]:44} {status:22}{took:>7}{after:>8}{figures}  {left}", flush=True)


async def measure(backend: str) -> bool:
    """Prints the figures of one backend; returns False if the neighbour got a wrong answer or something was left."""
    print(f"{backend:44} {'':22}{'seconds':>7}{'late ms':>8}{'p50 ms':>8}{'p99':>8}{'max':>8}  left")
    outcomes: dict[str, Outcome] = {}
    with host_folder() as folder:
        async with open_service(small_profile(backend, folder, **CHANGES)) as service:
            neighbour = Neighbour(service, (await execute(service, "number = 4711")).session_id)
            floor = [await quiet(neighbour, loops) for loops in LOADS]
            peace = await repeated(neighbour, Attack(_NOTHING["python"]), partial(look, folder / "runtime"))
            line("no attack, sessions open and close", peace.neighbour)
            for name, attack in ATTACKS.items():
                if has_image(backend, attack.language):
                    done = outcomes[name] = await repeated(neighbour, attack, partial(look, folder / "runtime"))
                    line(name, done.neighbour, done.status, done.seconds, done.late, str(done.left or ""))
            # If this figure differs from the first one, something else uses the machine, too.
            await quiet(neighbour)
    return summary(outcomes, floor[0], neighbour.wrong)


async def quiet(neighbour: Neighbour, loops: int = 0) -> list[float]:
    """Prints and returns the times of the neighbour while only busy loops run on this machine."""
    with busy(loops):
        async with neighbour.working() as times:
            await anyio.sleep(QUIET)
    line(f"no attack, {loops} busy loops", times)
    return times


def summary(outcomes: dict[str, Outcome], floor: list[float], wrong: list[str]) -> bool:
    """Prints the figures of all attacks together; returns False if something other than a time is wrong."""
    everything = [seconds for done in outcomes.values() for seconds in done.neighbour]
    worst = max(outcomes, key=lambda name: outcomes[name].late)
    slowest = max(outcomes, key=lambda name: max(outcomes[name].neighbour))
    slow = [name for name, done in outcomes.items() if percentile(done.neighbour, 0.99) >= SLOW]
    left = [name for name, done in outcomes.items() if done.left]
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    late = [done.late for done in outcomes.values()]
    row(f"{len(outcomes)} attacks, answers after the grace", late, promise=f"<= {LATE * 1000:g} ms")
    print(f"  the worst {max(late) * 1000:.0f} ms: {worst}")
    row("runs of the neighbour (floor: no attack)", everything, floor, f"p99 < {SLOW * 1000:g} ms")
    print(f"  p99 of all {len(everything)} runs {percentile(everything, 0.99) * 1000:.1f} ms")
    print(f"  the slowest {max(everything) * 1000:.0f} ms: {slowest}")
    print(f"  p99 not below {SLOW * 1000:g} ms in {len(slow)} attacks: {'; '.join(slow) or 'none'}")
    print(f"  wrong answers {len(wrong)}: {'; '.join(wrong) or 'none'}  promised: none")
    print(f"  {len(left)} attacks left something: {'; '.join(left) or 'none'}  promised: none")
    return not wrong and not left


async def main() -> bool:
    """Measures the backends that the arguments name; without arguments, embedded and every running test engine."""
    engines = {"embedded": True, "docker": docker_host(), "podman": podman_host(), "kubernetes": kubeconfig()}
    well = True
    for backend in sys.argv[1:] or engines:
        if engines[backend]:
            well = await measure(backend) and well
        else:
            print(f"{backend}: not running; start it with python -m tests.engines up")
    return well


if __name__ == "__main__":
    sys.exit(not anyio.run(main))
