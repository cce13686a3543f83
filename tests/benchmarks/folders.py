"""What an open folder costs the runs of a session: each figure is measured in turn with the same run without a folder."""

import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, host_folder, small_profile

from .speed import row

ROUNDS = 30
MANY = 10_000
RESULTS = 1500
ENGINES = ("embedded", "docker", "podman", "kubernetes")
PROMISE = "<= 50 ms more, mounted <= 5"


def fill(top: Path) -> None:
    """Makes many small files, a hundred in each folder."""
    for number in range(MANY):
        if number % 100 == 0:
            (top / f"d{number // 100}").mkdir()
        (top / f"d{number // 100}" / f"file-{number}.txt").write_text("x")


async def runs(services: dict[str, Service], change: Callable[[int], object], code: str) -> dict[str, list[float]]:
    """Seconds of a run in a session of each service, in turn, after a change of the folder that all of them share."""
    sessions = {name: (await execute(service, "1")).session_id for name, service in services.items()}
    times: dict[str, list[float]] = {name: [] for name in services}
    for number in range(ROUNDS):
        change(number)
        for name, service in services.items():
            start = time.perf_counter()
            done = await execute(service, code, session_id=sessions[name])
            times[name].append(time.perf_counter() - start)
            assert done.status == "ok", done
    return times


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    """How long something takes once."""
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


async def measure(engine: str) -> None:
    """Measures one engine and prints its rows."""
    with host_folder() as folder:
        top, few = folder / "many", folder / "few"
        for made in (top, few):
            made.mkdir()
        fill(top)
        (few / "file").write_text("x")
        opened = {"none": [], "few": [f"{few}:rw"], "many": [f"{top}:rw"], "read": [str(top)]}
        async with AsyncExitStack() as stack:
            services: dict[str, Service] = {}
            for name, folders in opened.items():
                limits = {"memory": 1024 * MIB, "disk": 256 * MIB, "timeout": 60.0}
                profile = small_profile(engine, folder, files={"folders": folders}, limits=limits)
                services[name] = await stack.enter_async_context(open_service(profile))
            times = await runs(services, lambda _: None, "1")
            row(f"{engine}: a run without a folder (floor)", times["none"])
            row(f"{engine}: one file, open for writing", times["few"], times["none"])
            row(f"{engine}: {MANY} files, open for reading", times["read"], times["none"], PROMISE)
            row(f"{engine}: {MANY} files, open for writing", times["many"], times["none"], PROMISE)
            edited = top / "d1" / "file-101.txt"
            times = await runs({"many": services["many"]}, lambda number: edited.write_text(str(number)), "1")
            row(f"{engine}: the same, one was edited", times["many"])
            service = services["many"]
            first = await seconds(lambda: execute(service, "1"))
            session = (await execute(service, "1")).session_id
            for what, mode in (("new", "w"), ("changed", "a")):
                code = f"for n in range({RESULTS}): open(f'/data/many/new-{{n}}', {mode!r}).write('x' * 100)"
                saved = await seconds(lambda code=code: execute(service, code, session_id=session))  # type: ignore[misc]
                row(f"{engine}: {RESULTS} {what} files saved", [saved])
            row(f"{engine}: the first run of a session, {MANY} files", [first])


async def main() -> None:
    """Measures the engines that are named as arguments, by default bubblewrap, and prints the table."""
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    for engine in sys.argv[1:] or ENGINES[:1]:
        await measure(engine)


if __name__ == "__main__":
    anyio.run(main)
