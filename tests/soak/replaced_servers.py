"""python -m tests.soak.replaced_servers --sessions 200 --minutes 10: works in sessions while servers come and go.

One server at a time keeps its sessions in one store; it is replaced again and again, half of the times after it was
killed. The program knows what each session must answer: what its last answered run left, or else something earlier,
with a note or an error that announces the loss. Prints a table; exits with 1 if an answer was wrong.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import anyio
from mcp import MCPError
from mcp.types import TextContent

from llm_sandbox_mcp.cli.toml import as_toml
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.testing.profiles import host_folder, small_profile
from tests.mcp.hosts import Host, host

WORKERS = 8
"""Calls at once."""
RARE = 0.05
"""How often the second half of the sessions is used, compared with the first: these are put aside when they are idle."""
_SHOWN = 20
"""Wrong answers that are printed."""
_ENDS = ["SIGTERM", "SIGKILL", "input", "SIGKILL"]
_GONE = anyio.BrokenResourceError, anyio.ClosedResourceError, MCPError
_LAST = 60.0
"""Seconds for the last answers of a server that has ended."""

CODE = """
def _step():
    global n
    import hashlib, os
    digest = lambda number: hashlib.sha256(number.encode()).hexdigest()
    before, read = globals().get('n', 0), '0'
    if os.path.exists('n'):
        read, checksum = open('n').read().split()
        assert checksum == digest(read)
    after = str(max(before, int(read)) + 1)
    with open('part', 'w') as file:
        file.write(f'{after} {digest(after)}')
    os.replace('part', 'n')
    n = int(after)
    print(before, read, after)
_step()
"""


@dataclass
class Known:
    """A session, and what is known of it."""

    id: str
    value: int = 1
    """What the last answered run left."""
    unsure: int = 0
    """Runs since then without an answer: each may have counted."""
    torn: set[int] = field(default_factory=set)
    """Values after which a run may have been broken off between the file and the variable."""
    server: int = 0
    """The number of the server that has answered last."""
    killed: int = 0
    """How many servers had been killed then."""


@dataclass
class Tally:
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    """Seconds of each session's first call to another server."""
    other: list[float] = field(default_factory=list)
    """Seconds of all other calls."""
    ends: dict[str, list[float]] = field(default_factory=dict)
    """Seconds that servers took to end, by how they were asked to."""


class Soak:
    """Workers, the sessions that they use, and the server that there is now."""

    def __init__(self, profile: Path, number: int, random: Random) -> None:
        self.tally = Tally()
        self._profile = profile
        self._number = number
        self._random = random
        self._idle: list[Known | None] = [None] * number
        """The sessions that nobody uses now; None for one that does not exist yet."""
        self._now: Host | None = None
        self._servers = self._killed = self._calls = 0
        self._changed = anyio.Event()
        self._done = False

    async def run(self, seconds: float, every: float) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(WORKERS):
                tasks.start_soon(self._work)
            until = anyio.current_time() + seconds
            while anyio.current_time() < until:
                way = _ENDS[self._servers % len(_ENDS)]
                self._servers += 1
                async with host(self._profile, "2026-07-28") as server:
                    self._now = server
                    self._change()
                    await anyio.sleep(every * self._random.uniform(0.5, 1.5))
                    await self._end(server, way)
            self._done = True
            self._change()

    async def _end(self, server: Host, way: str) -> None:
        began = perf_counter()
        self._killed += way == "SIGKILL"
        code = await server.end(way)
        self._now = None
        self.tally.ends.setdefault(way, []).append(perf_counter() - began)
        self.tally.counts["servers replaced"] += 1
        said = server.log.read_text().splitlines()
        self.tally.counts["lines on stderr"] += len(said)
        self._check(code == (-9 if way == "SIGKILL" else 0), f"{way}: the server ended with {code}: {said}")
        for line in said:
            print(line, file=sys.stderr)
        with anyio.fail_after(_LAST):
            while self._calls:
                await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _work(self) -> None:
        while not self._done:
            if self._now is None:
                await self._changed.wait()
                continue
            place = self._chosen()
            known, self._idle[place] = self._idle[place], _BUSY
            self._calls += 1
            try:
                self._idle[place] = await self._call(self._now, known)
            finally:
                self._calls -= 1
                self._change()

    def _chosen(self) -> int:
        free = [place for place in range(self._number) if self._idle[place] is not _BUSY]
        [place] = self._random.choices(free, [1 if place < self._number / 2 else RARE for place in free])
        return place

    async def _call(self, server: Host, known: Known | None) -> Known | None:
        """One run in a session, or in a new one; returns what is known of it afterwards."""
        number, killed, began = self._servers, self._killed, perf_counter()
        self.tally.counts["calls"] += 1
        arguments = {"code": CODE, **({"session_id": known.id} if known else {})}
        try:
            result = await server.client.call_tool("execute_code", arguments)
        except _GONE:
            if self._now is server:
                self._now = None  # nobody calls it again
            return self._unanswered(known, "calls without an answer")
        found: dict[str, Any] = result.structured_content or {}
        if result.is_error:
            assert isinstance(result.content[0], TextContent)
            return self._refused(server, known, result.content[0].text)
        if found["status"] == "cancelled":
            return self._unanswered(known, "runs cancelled")
        if found["status"] != "ok":
            self._check(False, str(found)[:500])
            return None
        before, read, after = map(int, found["stdout"].split())
        seconds = perf_counter() - began
        if known is None:
            self._check((before, read, after) == (0, 0, 1), f"a new session has {found['stdout']}")
            return Known(found["session_id"], server=number, killed=killed)
        self._compare(known, before, read, found["notes"])
        (self.tally.other if known.server == number else self.tally.first).append(seconds)
        known.value, known.unsure, known.server, known.killed = after, 0, number, killed
        return known

    def _unanswered(self, known: Known | None, what: str) -> Known | None:
        self.tally.counts[what] += 1
        if known is not None:
            known.torn.update(range(known.value, known.value + known.unsure + 1))
            known.unsure += 1
        return known

    def _refused(self, server: Host, known: Known | None, why: str) -> Known | None:
        if "the server is ending" in why:
            if self._now is server:
                self._now = None
            self.tally.counts["refused, as the server was ending"] += 1
            return known
        if known is not None and "is not open: the server has started again since" in why:
            cause = "killed" if self._killed > known.killed else "asked to end"
            self.tally.counts[f"losses announced: not known, the server was {cause}"] += 1
            return None
        self._check(False, why)
        return None

    def _compare(self, known: Known, before: int, read: int, notes: Sequence[str]) -> None:
        expected = f"{known.value} was expected, or up to {known.unsure} more: {before}, file {read}, {notes}"
        torn = read == before + 1 and before in known.torn
        self._check(read == before or torn, f"variable and file differ: {expected}")
        if known.value <= before <= known.value + known.unsure:
            self.tally.counts["answers right"] += 1
            return
        announced = any("is lost" in note or "are lost" in note for note in notes)
        if announced and before < known.value:
            cause = "killed" if self._killed > known.killed else "asked to end"
            self.tally.counts[f"losses announced: earlier state, the server was {cause}"] += 1
            return
        self.tally.counts["losses not announced"] += before < known.value
        self._check(False, f"server {known.server} then {self._servers}: {expected}")

    def _check(self, true: bool, problem: str) -> None:
        if not true:
            self.tally.wrong.append(problem)


_BUSY = Known("")
"""In the place of a session that is in use."""


def _milliseconds(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    shown = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99, 1)]
    return f"{len(ordered)} calls, " + ", ".join(
        f"{name} {one * 1000:.0f} ms" for name, one in zip(("p50", "p99", "max"), shown, strict=True)
    )


def written(folder: Path, number: int, idle: float, save_timeout: float) -> Path:
    """The file of a profile for so many sessions, with these times; all that its servers need is in the folder."""
    sessions = {
        "keep": True,
        "max": number + WORKERS,
        "starts_per_second": 1000.0,
        "idle_timeout": idle,
        "save_timeout": save_timeout,
    }
    small = small_profile("embedded", folder, sessions=sessions, pool={"max": number + 2 * WORKERS})
    path = folder / "profile.toml"
    # This Python is the system's own, for which no libraries are prepared.
    path.write_text(as_toml(small.model_copy(update={"languages": {"python": LanguageSection()}})))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.replaced_servers", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("--sessions", type=int, default=200, help="sessions (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=10.0, help="duration (default: %(default)s)")
    parser.add_argument("--every", type=float, default=20.0, help="seconds of a server, on average (%(default)s)")
    parser.add_argument("--save-timeout", type=float, default=10.0, help="sessions.save_timeout (default: %(default)s)")
    parser.add_argument("--idle", type=float, default=5.0, help="sessions.idle_timeout (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random order (default: %(default)s)")
    options = parser.parse_args()
    with host_folder() as folder:
        profile = written(folder, options.sessions, options.idle, options.save_timeout)
        soak = Soak(profile, options.sessions, Random(options.seed))
        anyio.run(soak.run, options.minutes * 60, options.every)
        left = len([*(folder / "runtime").iterdir()])
    tally = soak.tally
    for name, count in sorted(tally.counts.items()):
        print(f"{name:65}{count:8,}")
    print(f"{'losses not announced':65}{tally.counts['losses not announced']:8,}")
    print(f"{'answers wrong':65}{len(tally.wrong):8,}")
    print(f"{'folders left by killed servers, which the next one removes':65}{left:8,}")
    print("first call of a session to another server:", _milliseconds(tally.first))
    print("other calls:", _milliseconds(tally.other))
    for way, seconds in tally.ends.items():
        print(f"end of a server by {way}: {len(seconds)}, {max(seconds):.2f} s at most")
    print(*tally.wrong[:_SHOWN], sep="\n")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
