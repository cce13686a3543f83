"""What the warm pool saves and costs: each figure is measured in turn with the same action without the pool."""

import shutil
import time
from collections.abc import Mapping

import anyio

from llm_sandbox_mcp.base.results import PoolStatistics
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.pool.pool import Pool
from llm_sandbox_mcp.profile.profile import Profile, load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

from .speed import row

ROUNDS = 30
KEPT = 6
"""How many sandboxes are warm when acquiring is measured: some must be left while others are being made."""
PROMISE = "<= 15 ms on Docker"
FIRST: Mapping[str, str] = {"python": "print(1)", "javascript": "1", "ruby": "1", "bash": "echo 1", "r": "1"}


def profile(**pool: object) -> Profile:
    """The default profile with other settings of the pool."""
    default = load_profile()
    return default.model_copy(update={"pool": default.pool.model_copy(update=pool)})


async def first_results(pooled: Service, unpooled: Service, language: str) -> tuple[list[float], list[float]]:
    """Seconds to the first result in a fresh sandbox, from the pool and without it, in turn."""

    def ready(now: PoolStatistics) -> bool:
        # No sandbox is being made or ended during the measurement.
        return now.warming == now.closing == 0 and any(key.language == language and key.warm for key in now.keys)

    ours: list[float] = []
    floor: list[float] = []
    for _ in range(ROUNDS):
        for service, times in ((pooled, ours), (unpooled, floor)):
            await unpooled.pool_until(lambda now: now.closing == 0)
            await pooled.pool_until(ready)
            start = time.perf_counter()
            run = await execute(service, FIRST[language], language=language, keep_session=False)
            times.append(time.perf_counter() - start)
            assert run.status == "ok", run
    return ours, floor


async def acquires(service: Service) -> tuple[list[float], list[float]]:
    """Seconds to acquire a warm sandbox while nothing else goes on, and while others are being made."""
    pool: Pool = service._pool
    policy = service.profile.limits.policy()
    quiet: list[float] = []
    refilling: list[float] = []
    for _ in range(ROUNDS):
        await pool.until(lambda now: (now.warm, now.warming, now.closing) == (KEPT, 0, 0))
        leases = []
        for number in range(KEPT // 2):
            start = time.perf_counter()
            leases.append(await pool.acquire("python", policy))
            (refilling if number else quiet).append(time.perf_counter() - start)
            # Give the refill time to really start.
            await anyio.sleep(0.005)
        assert all(lease.interpreters.languages for lease in leases)
        for lease in leases:
            lease.release()
    return quiet, refilling


async def main() -> None:
    """Measures everything and prints the table."""
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    programs = load_languages()
    languages = tuple(name for name in FIRST if all(map(shutil.which, programs[name].handler.requires.commands)))
    async with (
        open_service(profile(languages=languages, min=1)) as pooled,
        open_service(profile(min=0)) as unpooled,
    ):
        await unpooled.warm()
        await pooled.warm()
        for language in languages:
            ours, floor = await first_results(pooled, unpooled, language)
            row(f"first result, {language}, unpooled (floor)", floor)
            row(f"first result, {language}, from the pool", ours, floor, PROMISE)
    async with open_service(profile(languages=("python",), min=KEPT)) as service:
        await service.warm()
        quiet, refilling = await acquires(service)
        row("acquire a warm sandbox, nothing else runs", quiet)
        row("acquire one while others are being made", refilling, quiet)


if __name__ == "__main__":
    anyio.run(main)
