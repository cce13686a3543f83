"""Saving, opening, branching and keeping sessions, beside a fresh session that runs the same first code, on bubblewrap.

`python -m tests.benchmarks.saved many` puts 1,000 sessions aside, and opens each of them again.
"""

import gc
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType

import anyio

from llm_sandbox_mcp.base.principal import USER
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder

from .speed import row

ROUNDS = 25
LARGE_ROUNDS = 9
LOADED = 5.0
"""Seconds that an interpreter needs to import what is preloaded."""
SMALL = """
import dataclasses
@dataclasses.dataclass
class Point:
    x: int
    y: int
values = [Point(i, i) for i in range(5)]
def total():
    return sum(point.x for point in values)
for i in range(16):
    globals()[f"v{i}"] = [i, str(i), {i: None}]
for i in range(10):
    with open(f"file{i}", "w") as file:
        file.write("content" * 100)
"""
"""20 small variables and 10 files."""
LIBRARIES = """
import json
import numpy as np
import pandas as pd
from collections import Counter
frame = pd.DataFrame({"a": [1, 2, 3]})
counts = Counter("abc")
names = ["a", "b"]
limit = 10
def total():
    return sum(counts.values()) + limit
"""
TOGETHER = 100
LARGE = "import numpy\nlarge = numpy.random.default_rng(1).random(13_107_200)\nlarge.nbytes >> 20"
"""100 MiB of an array."""


async def timed(work: Callable[[], Awaitable[object]], times: list[float]) -> None:
    start = time.perf_counter()
    await work()
    times.append(time.perf_counter() - start)


async def warm(service: Service) -> None:
    """Waits for a sandbox that waits for a session, and for nothing else to happen."""
    await service.pool_until(lambda pool: pool.warm > 0 and not pool.warming and not pool.closing)


async def small(service: Service) -> None:
    """20 small variables and 10 files."""
    states, session = service.states, (await execute(service, SMALL)).session_id
    fresh, saving, opening, branching = (list[float]() for _ in range(4))

    async def start() -> None:
        await service.sessions.close((await execute(service, "1")).session_id)

    async def open_() -> None:
        opened = await states.open(USER, "small")
        assert not opened.missing, opened
        await execute(service, "total()", session_id=opened.session_id)
        await service.sessions.close(opened.session_id)

    async def branch() -> None:
        opened = await states.branch(USER, session)
        await execute(service, "total()", session_id=opened.session_id)
        await service.sessions.close(opened.session_id)

    for _ in range(ROUNDS):
        await warm(service)
        await timed(start, fresh)
        await timed(lambda: states.save(USER, session, "small"), saving)
        for work, times in ((open_, opening), (branch, branching)):
            await warm(service)
            await timed(work, times)
    row("a fresh session and its first run", fresh)
    row("save 20 small variables and 10 files", saving, fresh, "<= 30 ms")
    row("open them and run", opening, fresh, "<= 40 ms more than fresh")
    row("branch them and run", branching, fresh)
    await service.sessions.close(session)


async def large(service: Service) -> None:
    """100 MiB of an array."""
    states, session = service.states, (await execute(service, LARGE)).session_id
    saving, opening, branching, floor = (list[float]() for _ in range(4))

    async def open_() -> None:
        opened = await states.open(USER, "large")
        assert not opened.missing, opened
        await service.sessions.close(opened.session_id)

    async def branch() -> None:
        opened = await states.branch(USER, session)
        assert not opened.missing, opened
        await service.sessions.close(opened.session_id)

    for _ in range(LARGE_ROUNDS):
        await timed(lambda: execute(service, "other = large.copy(); del other", session_id=session), floor)
        await timed(lambda: states.save(USER, session, "large"), saving)
        for work, times in ((open_, opening), (branch, branching)):
            await warm(service)
            await timed(work, times)
    row("a copy of an array of 100 MiB in its session", floor)
    row("save it", saving, floor)
    row("open it", opening, floor)
    row("branch it", branching, floor, "<= 400 ms")


async def prepared() -> None:
    """Sessions that start from a state of imported libraries and small values, beside sessions that start empty."""
    with host_folder() as folder:
        store = {"store": str(folder / "saved"), "max": 2 * TOGETHER}
        async with served(store, folder, pool={"max": 2 * TOGETHER}) as service:
            session = (await execute(service, LIBRARIES)).session_id
            await service.states.save(USER, session, "prepared")
            await service.sessions.close(session)
            fresh, from_it, together, opened = (list[float]() for _ in range(4))
            async with served(store, folder, languages={"python": {"start": "prepared"}}) as starting:
                for _ in range(ROUNDS):
                    for one, code, times in ((service, "1", fresh), (starting, "frame.a.sum(), total()", from_it)):
                        await warm(one)
                        await timed(partial(once, one, code), times)
            for _ in range(LARGE_ROUNDS):
                for work, times in ((begin_many, together), (open_many, opened)):
                    await warm(service)
                    sessions = list[str]()
                    await timed(partial(work, service, sessions), times)
                    for session in sessions:
                        await service.sessions.close(session)
    row("a fresh session and its first run", fresh)
    row("one that starts from a prepared state", from_it, fresh, "<= 2x")
    row(f"{TOGETHER} fresh sessions at once, a run in each", together)
    row(f"{TOGETHER} opened from a prepared state", opened, together, "<= 2x")


async def once(service: Service, code: str) -> None:
    """A session with one run."""
    run = await execute(service, code)
    assert run.status == "ok", run
    await service.sessions.close(run.session_id)


async def begin_many(service: Service, sessions: list[str]) -> None:
    """Sessions that start empty."""
    sessions += [service.sessions.open(USER) for _ in range(TOGETHER)]
    async with anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(partial(execute, service, "1", session_id=session))


async def open_many(service: Service, sessions: list[str]) -> None:
    """Sessions that are opened from a saved one."""
    sessions += [opened.session_id for opened in await service.states.open_many(USER, "prepared", TOGETHER)]
    async with anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(partial(execute, service, "frame.a.sum(), total()", session_id=session))


async def kept(service: Service, code: str, change: str, what: str, promised: str) -> None:
    """What is saved after a run that changed one small variable."""
    session = (await execute(service, code)).session_id
    saving = list[float]()
    await checkpoint(service, session)
    for number in range(LARGE_ROUNDS):
        await execute(service, change.format(number), session_id=session)
        begun = time.perf_counter()
        await checkpoint(service, session)
        saving.append(time.perf_counter() - begun)
    row(what, saving, None, promised)
    await service.sessions.close(session)


async def checkpoint(service: Service, session_id: str) -> None:
    """Waits until what a run changed is saved, which begins with the result of the run."""
    while service.keeping.saving(session_id):  # noqa: ASYNC110 - it has no event
        await anyio.sleep(0.0005)


async def many(number: int = 1000) -> None:
    """Sessions that are put aside, and each opened again once."""

    def memory() -> int:
        """MiB of this process."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

    sessions = {"keep": True, "idle_timeout": "2s", "max": 64, "kept": 2 * number}
    async with served(sessions) as service:
        for part in range(2):  # what grows once, with the first sessions, is no leak
            ids = [(await execute(service, f"x = {n}")).session_id for n in range(number if part else 50)]
            await aside(service)
            gc.collect()
            before = memory()
            begun, lost, took = time.perf_counter(), 0, list[float]()
            for n, session_id in enumerate(ids):
                start = time.perf_counter()
                run = await execute(service, "x", session_id=session_id)
                took.append(time.perf_counter() - start)
                lost += run.result != str(n)
            whole = time.perf_counter() - begun
            await aside(service)
            gc.collect()
        took.sort()
        print(
            f"{number} sessions put aside and opened again: {lost} lost, {whole:.1f} s, p50 {took[number // 2]:.3f} s"
        )
        print(f"memory of the server: {before} MiB before, {memory()} MiB after")


async def aside(service: Service) -> None:
    """Waits until no session is live."""
    while service.sessions.list():  # noqa: ASYNC110 - it has no event
        await anyio.sleep(0.05)


@asynccontextmanager
async def served(
    sessions: Mapping[str, object] = MappingProxyType({}), folder: Path | None = None, **others: object
) -> AsyncIterator[Service]:
    """A service with Python's default libraries."""
    with host_folder() if folder is None else nullcontext(folder) as folder:
        over = {"sessions": {"store": str(folder / "saved"), **sessions}, **others}
        async with open_service(load_profile(over=over)) as service:
            await service.warm(["python"])
            await service.pool_until(lambda pool: pool.warm > 0)
            await anyio.sleep(LOADED)  # until then, what waits is no fork of an interpreter that has imported pandas
            yield service


async def main() -> None:
    """Measures small sessions, then large ones."""
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    await prepared()
    async with served() as service:
        await small(service)
        await large(service)
    async with served({"keep": True, "checkpoint": "run"}) as service:
        await kept(service, SMALL, "v0 = {}", "checkpoint of one of 20 small variables", "<= 20 ms")
        await kept(service, f"{LARGE}; v0 = 0", "v0 = {}", "checkpoint of one beside 100 MiB", "<= 70 ms")


if __name__ == "__main__":
    anyio.run(many if sys.argv[1:] == ["many"] else main)
