"""Several users at work on one server, which is measured again and again."""

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
"""Wrong answers of one part after which there is no need for more."""
_CALM = 60.0
"""Seconds for what has ended to be gone, and for sessions that were forgotten to expire."""
_STILL = 8.0
"""Seconds without a change after which the server is taken to be at rest, the first time."""
_LOOK = 0.25
_PER_RUN = 2 * MIB / 10_000
"""Bytes of memory that a server may grow by with each run."""
_ALLOWED = 4 * MIB
"""Bytes by which its memory may differ anyway: what is free is not always given back at once."""
_SETTLED = 10_000
"""Runs after which memory has what it needs."""
_UNSETTLED = 24 * MIB
"""Bytes that it may grow by before."""
_THREADS = 40
"""For calls that block, of which a loop has at most so many: they wait for the next call."""


@dataclass(frozen=True)
class Part:
    """What came of a part of the time, and what was there when all users had closed their sessions."""

    runs: int
    """Since the beginning."""
    wrong: Sequence[str]
    seconds: Sequence[float]
    """That each run in a live session took."""
    memory: Mapping[str, int]
    counts: Mapping[str, int]

    def quantile(self, part: float) -> float:
        """Seconds within which this part of the runs in live sessions ended."""
        ordered = sorted(self.seconds) or [0.0]
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]

    def row(self) -> Mapping[str, str]:
        """A line of the table, by its columns."""
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
    """What there was after several parts. At any one of them memory may be some MiB beyond, as it comes back late."""

    runs: float
    memory: Mapping[str, float]
    counts: Mapping[str, float]


def rates(parts: Sequence[Part]) -> Mapping[str, str]:
    """What the server grew by with each 10,000 runs, after the first of them, and how its latency changed since the second part."""
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
    """Has users work for so long, and yields what came of each part of the time."""
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
    """What is wrong with a server that was measured so; nothing where all is as it should be."""
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
    """How many more than in the first half there may be of what waits for its next use, and is at most so many."""
    return {"threads": _THREADS, "descriptors": CONNECTIONS.get(backend, 0)}


def _settled(parts: Sequence[Part]) -> tuple[_Mean, _Mean, bool]:
    """What there was early and late, when memory had what it needs; of the second half, and false, where there were fewer runs."""
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
    """How many parts of a soak are its first half."""
    return max(1, parts // 2)


async def _use(server: Server, random: Random, tally: Tally, languages: Sequence[str], until: float) -> None:
    """One user, until the time comes."""
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
    """What there is when nothing ends any more: no more than before, or what stays the same for a while."""
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
