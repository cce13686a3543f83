"""Lets several users work on one server, which is measured repeatedly."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

import anyio

from tests.engines import MIB
from tests.growth import CONNECTIONS

from .jobs import MIX, Tally, User, WrongAnswer
from .serving import Server

USERS = 4
PARTS = 10
_ENOUGH = 20
"""The number of wrong answers after which the users end a part of the soak."""
_CALM = 60.0
"""Seconds until everything that has ended must be gone and forgotten sessions must have expired."""
_STILL = 8.0
"""Seconds without a change after which the server counts as at rest, the first time."""
_LOOK = 0.25
_PER_RUN = 2 * MIB / 10_000
"""Bytes of memory that a server may grow by per run."""
_ALLOWED = 4 * MIB
"""Bytes by which its memory may grow in any case: free memory is not always returned at once."""
_SETTLED = 10_000
"""Runs after which the memory is expected to be stable."""
_UNSETTLED = 24 * MIB
"""Bytes that it may grow by before that."""
_THREADS = 40
"""The maximum number of worker threads of an event loop; idle ones wait for the next blocking call."""


@dataclass(frozen=True)
class Part:
    """The results of one part of the soak, measured after all users have closed their sessions."""

    runs: int
    """Runs since the beginning of the soak."""
    wrong: Sequence[str]
    seconds: Sequence[float]
    """How long each run in a live session took."""
    memory: Mapping[str, int]
    counts: Mapping[str, int]

    def quantile(self, part: float) -> float:
        """Seconds within which this fraction of the runs in live sessions ended."""
        ordered = sorted(self.seconds) or [0.0]
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]

    def row(self) -> Mapping[str, str]:
        """A line of the table: its cells by column."""
        return {
            "runs": f"{self.runs:,}",
            "wrong": str(len(self.wrong)),
            **{f"{name} KiB": f"{size >> 10:,}" for name, size in self.memory.items()},
            **{name: str(count) for name, count in self.counts.items()},
            "p50 ms": f"{self.quantile(0.5) * 1000:.1f}",
            "p99 ms": f"{self.quantile(0.99) * 1000:.1f}",
        }


@dataclass(frozen=True)
class _Mean:
    """The mean over several parts: after a single part the memory may be some MiB too high, as it is returned late."""

    runs: float
    memory: Mapping[str, float]
    counts: Mapping[str, float]


def rates(parts: Sequence[Part]) -> Mapping[str, str]:
    """Growth of the server per 10,000 runs, after the first 10,000, and its change in latency since the second part."""
    early, late, _ = _settled(parts)
    more = max(1.0, late.runs - early.runs) / 10_000
    before = parts[min(1, len(parts) - 1)].quantile(0.99)
    return {
        **{name: f"{(late.counts[name] - count) / more:+.1f}" for name, count in early.counts.items()},
        **{f"{name} MiB": f"{(late.memory[name] - size) / more / MIB:+.2f}" for name, size in early.memory.items()},
        "p99": f"{parts[-1].quantile(0.99) / before:.2f}x" if before else "none",
    }


async def soak(
    server: Server, languages: Sequence[str], seconds: float, *, parts: int = PARTS, seed: int = 0
) -> AsyncIterator[Part]:
    """Lets users work for that many seconds, and yields the results of each part of the time."""
    runs = 0
    most: Mapping[str, int] | None = None
    for part in range(parts):
        tally = Tally()
        async with anyio.create_task_group() as tasks:
            for number in range(USERS):
                random = Random(f"{seed} {part} {number}")
                tasks.start_soon(_use, server, random, tally, languages, anyio.current_time() + seconds / parts)
        runs += tally.runs
        counts = await _at_rest(server, most)
        if part < _begun(parts):
            most = {name: max(count, most[name] if most else 0) for name, count in counts.items()}
        yield Part(runs, tally.wrong, tally.seconds, server.memory(), counts)


def grown(parts: Sequence[Part], backend: str) -> list[str]:
    """The problems that these measurements show; empty if there are none."""
    first, last, more = parts[_begun(len(parts)) - 1], parts[-1], _waiting(backend)
    found = [answer for part in parts for answer in part.wrong]
    for name in first.counts:
        count = max(part.counts[name] for part in parts[: _begun(len(parts))])
        if last.counts[name] > count + more.get(name, 0):
            found.append(f"{name} have grown from {count} to {last.counts[name]} in {last.runs - first.runs:,} runs")
    early, late, settled = _settled(parts)
    allowed = _ALLOWED + _PER_RUN * (late.runs - early.runs) if settled else _UNSETTLED
    for name, size in early.memory.items():
        if (growth := late.memory[name] - size) > allowed:
            found.append(
                f"the memory of the {name} has grown by {growth / 1024:,.0f} KiB in {late.runs - early.runs:,.0f} runs"
            )
    return found


def _waiting(backend: str) -> Mapping[str, int]:
    """How many more idle threads and connections there may be than in the first half; both have a maximum."""
    return {"threads": _THREADS, "descriptors": CONNECTIONS.get(backend, 0)}


def _settled(parts: Sequence[Part]) -> tuple[_Mean, _Mean, bool]:
    """The early and late means once memory is stable, and true; with too few runs, of the second half, and false."""
    enough = [part for part in parts if part.runs >= _SETTLED]
    settled = enough if len(enough) > 1 else parts[len(parts) // 2 :]
    middle = _begun(len(settled))
    return _mean(settled[:middle]), _mean(settled[middle:] or settled), len(enough) > 1


def _mean(parts: Sequence[Part]) -> _Mean:
    return _Mean(
        fmean(part.runs for part in parts),
        {name: fmean(part.memory[name] for part in parts) for name in parts[0].memory},
        {name: fmean(part.counts[name] for part in parts) for name in parts[0].counts},
    )


def _begun(parts: int) -> int:
    """The number of parts in the first half of a soak."""
    return max(1, parts // 2)


async def _use(server: Server, random: Random, tally: Tally, languages: Sequence[str], until: float) -> None:
    """One user, who works until that time."""
    jobs, weights = [*MIX], [*MIX.values()]
    async with server.connect() as client:
        user = User(server.connect, client, random, tally, languages)
        while anyio.current_time() < until and len(tally.wrong) < _ENOUGH:
            [job] = random.choices(jobs, weights)
            try:
                await job(user)
            except (WrongAnswer, AssertionError) as error:
                tally.wrong.append(f"{job.__name__}: {error}")
                await user.leave()
        await user.leave()


async def _at_rest(server: Server, before: Mapping[str, int] | None) -> Mapping[str, int]:
    """The counts once the server is at rest: they are at most those of `before`, or have not changed for a while."""
    more, until, counts, since = (
        _waiting(server.backend),
        anyio.current_time() + _CALM,
        server.counts(),
        anyio.current_time(),
    )
    while anyio.current_time() < until:
        if before is not None and all(counts[name] <= before[name] + more.get(name, 0) for name in counts):
            break
        if before is None and anyio.current_time() - since > _STILL:
            break
        await anyio.sleep(_LOOK)
        if (now := server.counts()) != counts:
            counts, since = now, anyio.current_time()
    return counts
