"""Saving, opening and branching a session, beside a fresh session that runs the same first code, on bubblewrap."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

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


@asynccontextmanager
async def served() -> AsyncIterator[Service]:
    """A service with Python's default libraries."""
    with host_folder() as folder:
        async with open_service(load_profile(over={"sessions": {"store": str(folder / "saved")}})) as service:
            await service.warm(["python"])
            await service.pool_until(lambda pool: pool.warm > 0)
            await anyio.sleep(LOADED)  # until then, what waits is no fork of an interpreter that has imported pandas
            yield service


async def main() -> None:
    """Measures small sessions, then large ones."""
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    async with served() as service:
        await small(service)
        await large(service)


if __name__ == "__main__":
    anyio.run(main)
