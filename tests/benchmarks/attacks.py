"""What attacks on availability come to, one after the other: when each is over, what a neighbour notices, and what is left."""

import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, inf

import anyio

from llm_sandbox_mcp.errors import SandboxError
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.wiring import open_service
from tests.engines import docker_host, has_image, host_folder, kubeconfig, podman_host, small_profile
from tests.hostile.availability import ATTACKS, Attack
from tests.leftovers import System, beyond, look

from .grace import busy
from .speed import row

TIMEOUT = 1.0
GONE = 2.0
"""Seconds until nothing may be left."""
QUIET = 3.0
"""Seconds for each floor of the neighbour."""
LATE, SLOW = 0.3, 0.05
"""Promised: seconds of an answer beyond the grace, and of the neighbour's slowest run of a hundred."""
PAUSE = 0.005
RUNS = 100
"""Of the neighbour, at least, beside each attack, which is made again until then: of fewer there is no slowest of a hundred."""
LOADS = (0, 1, 2)
"""Busy loops of this machine beside the neighbour, without any attack."""
CHANGES: Mapping[str, Mapping[str, object]] = {
    "artifacts": {"files": 100, "store": 16 << 20},
    "limits": {"file_size": 8 << 20},
}
"""Of the small profile, for more to be taken after a run, and looked for."""
_NOTHING = {"python": "0", "javascript": "0", "bash": ":"}


@dataclass
class Neighbour:
    """Someone else's session, in which one trivial run follows the other."""

    service: Service
    session: str
    number: int = 4711
    wrong: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[list[float]]:
        """Works meanwhile, and gives the seconds that each run took from when it was due, as whoever waits counts them."""
        times: list[float] = []
        over = False

        async def work() -> None:
            due, last = time.perf_counter(), False
            while not last:
                await anyio.sleep(max(0.0, due - time.perf_counter()))
                # One more begins after all is over, or what held it up from beginning would not count.
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
            run = await self.service.execute("number", session_id=self.session)
        except SandboxError as error:
            return str(error)
        return f"{run.status} {run.result}"


@dataclass(frozen=True)
class Outcome:
    """What one attack came to."""

    status: str
    seconds: float
    late: float
    """Seconds beyond timeout and grace."""
    neighbour: list[float]
    left: dict[str, list[str]]


async def repeated(neighbour: Neighbour, attack: Attack, state: Callable[[], System]) -> Outcome:
    """Makes the attack as often as it takes, and gives the worst that it came to."""
    done = await attacked(neighbour, attack, state)
    while len(done.neighbour) < RUNS and not done.left:
        more = await attacked(neighbour, attack, state)
        worse = max(done, more, key=lambda outcome: outcome.late)
        done = replace(worse, neighbour=done.neighbour + more.neighbour, left=more.left)
    return done


async def attacked(neighbour: Neighbour, attack: Attack, state: Callable[[], System]) -> Outcome:
    """Makes the attack in a session of its own, and waits until nothing of it is left, for a while."""
    service, due = neighbour.service, TIMEOUT + neighbour.service.profile.limits.grace
    before = state()
    session = (await service.execute(_NOTHING[attack.language], language=attack.language)).session_id
    # What is of its sandbox is known by this look, even where the attack ends it.
    state()
    async with neighbour.working() as times:
        start = time.perf_counter()
        try:
            run = await service.execute(attack.code, language=attack.language, session_id=session, timeout=TIMEOUT)
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
    """The least time that so large a share of the runs took at most."""
    return sorted(times)[ceil(len(times) * share) - 1]


def line(
    name: str, times: list[float], status: str = "", seconds: float = inf, late: float = 0, left: str = ""
) -> None:
    """Prints what one attack, or none, came to."""
    took = f"{seconds:7.2f}" if seconds < inf else ""
    after = f"{late * 1000:.0f}" if late else ""
    figures = "".join(f"{percentile(times, share) * 1000:8.1f}" for share in (0.5, 0.99, 1))
    print(f"{name[:44]:44} {status:22}{took:>7}{after:>8}{figures}  {left}", flush=True)


async def measure(backend: str) -> bool:
    """Prints the figures of one backend; false where the neighbour got a wrong answer, or something was left."""
    print(f"{backend:44} {'':22}{'seconds':>7}{'late ms':>8}{'p50 ms':>8}{'p99':>8}{'max':>8}  left")
    outcomes: dict[str, Outcome] = {}
    with host_folder() as folder:
        async with open_service(small_profile(backend, folder, **CHANGES)) as service:
            neighbour = Neighbour(service, (await service.execute("number = 4711")).session_id)
            floor = [await quiet(neighbour, loops) for loops in LOADS]
            peace = await repeated(neighbour, Attack(_NOTHING["python"]), partial(look, folder / "runtime"))
            line("no attack, sessions that come and go", peace.neighbour)
            for name, attack in ATTACKS.items():
                if has_image(backend, attack.language):
                    done = outcomes[name] = await repeated(neighbour, attack, partial(look, folder / "runtime"))
                    line(name, done.neighbour, done.status, done.seconds, done.late, str(done.left or ""))
            # Another figure than at first tells that others use the machine too.
            await quiet(neighbour)
    return summary(outcomes, floor[0], neighbour.wrong)


async def quiet(neighbour: Neighbour, loops: int = 0) -> list[float]:
    """Prints what the neighbour notices of nothing but busy loops of this machine, and gives it."""
    with busy(loops):
        async with neighbour.working() as times:
            await anyio.sleep(QUIET)
    line(f"no attack, {loops} busy loops", times)
    return times


def summary(outcomes: dict[str, Outcome], floor: list[float], wrong: list[str]) -> bool:
    """Prints what all attacks together came to; false where it is not a matter of time that went wrong."""
    everything = [seconds for done in outcomes.values() for seconds in done.neighbour]
    worst = max(outcomes, key=lambda name: outcomes[name].late)
    slowest = max(outcomes, key=lambda name: max(outcomes[name].neighbour))
    slow = [name for name, done in outcomes.items() if percentile(done.neighbour, 0.99) >= SLOW]
    left = [name for name, done in outcomes.items() if done.left]
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    late = [done.late for done in outcomes.values()]
    row(f"{len(outcomes)} attacks, answers beyond the grace", late, promise=f"<= {LATE * 1000:g} ms")
    print(f"  the worst {max(late) * 1000:.0f} ms: {worst}")
    row("neighbour's runs, beside no attack at first", everything, floor, f"p99 < {SLOW * 1000:g} ms")
    print(f"  p99 of all {len(everything)} runs {percentile(everything, 0.99) * 1000:.1f} ms")
    print(f"  the slowest {max(everything) * 1000:.0f} ms: {slowest}")
    print(f"  p99 not below {SLOW * 1000:g} ms in {len(slow)} attacks: {'; '.join(slow) or 'none'}")
    print(f"  wrong answers {len(wrong)}: {'; '.join(wrong) or 'none'}  promised: none")
    print(f"  something left of {len(left)} attacks: {'; '.join(left) or 'none'}  promised: none")
    return not wrong and not left


async def main() -> bool:
    """Measures the backends that are named, otherwise embedded and every engine of the tests that runs."""
    engines = {"embedded": True, "docker": docker_host(), "podman": podman_host(), "kubernetes": kubeconfig()}
    well = True
    for backend in sys.argv[1:] or engines:
        if engines[backend]:
            well = await measure(backend) and well
        else:
            print(f"{backend}: does not run; python -m tests.engines up")
    return well


if __name__ == "__main__":
    sys.exit(not anyio.run(main))
