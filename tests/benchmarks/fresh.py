"""Fresh sandboxes on bubblewrap: how soon the first result comes, how many a second, and what idle ones take.

On the wire: a real server on stdio, and JSON-RPC by hand. Each figure is measured in turn with `python3 -c pass`.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from llm_sandbox_mcp.host.folders import host_folders
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.libraries.prepared.preparing import environment_places
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.testing.profiles import host_folder
from llm_sandbox_mcp.wiring import open_service

from ..mcp.wire import CLIENT
from .speed import row

ROUNDS = 40
SUSTAINED = 12.0
"""Seconds for which sandboxes are made."""
AT_ONCE = 8
IDLE = 200
PRINT = "print(1)"
PANDAS = "import numpy, pandas\npandas.DataFrame({'a': [1, 2], 'b': [3, 4]})"
GROUPED = "pandas.DataFrame({'a': [1, 2], 'b': [3, 4]}).groupby('a').b.sum().to_dict()"
FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nNone"
PREPARED = "import numpy, pandas\n"
PYTHON = "/usr/bin/python3"


class Wire:
    """A server, and messages to it as lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0
        self.request("initialize", CLIENT)
        self.receive()
        self._send({"method": "notifications/initialized"})

    def request(self, method: str, params: Mapping[str, Any]) -> int:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        return self._number

    def receive(self) -> dict[str, Any]:
        """The next answer; notifications are passed over."""
        assert self.process.stdout is not None
        while True:
            message: dict[str, Any] = json.loads(self.process.stdout.readline())
            if "id" in message:
                assert "result" in message and not message["result"].get("isError"), message
                return message

    def run(self, code: str, **options: Any) -> dict[str, Any]:
        self.start(code, **options)
        answer: dict[str, Any] = self.receive()["result"]["structuredContent"]
        assert answer["status"] == "ok", answer
        return answer

    def first(self, code: str) -> float:
        """Seconds to the result of code in a new session."""
        start = time.perf_counter()
        session = self.run(code)["session_id"]
        seconds = time.perf_counter() - start
        self.close(session)
        return seconds

    def start(self, code: str, **options: Any) -> int:
        return self.request("tools/call", {"name": "execute_code", "arguments": {"code": code, **options}})

    def close(self, session_id: str) -> None:
        self.request(
            "tools/call", {"name": "manage_session", "arguments": {"action": "close", "session_id": session_id}}
        )
        self.receive()

    def pool(self) -> dict[str, Any]:
        self.request("resources/read", {"uri": "sandbox://pool"})
        found: dict[str, Any] = json.loads(self.receive()["result"]["contents"][0]["text"])
        return found

    def stocked(self, number: int) -> None:
        """Waits until so many sandboxes are warm, and none is being made or ended."""
        while (now := self.pool())["warm"] < number or now["warming"] or now["closing"]:
            time.sleep(0.005)

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()


@contextmanager
def served(profile: str) -> Iterator[Wire]:
    argv = [sys.executable, "-m", "llm_sandbox_mcp", "serve", "--profile", profile]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield Wire(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def bare(*code: str) -> float:
    return timed(lambda: subprocess.run([PYTHON, "-c", *(code or ("pass",))], check=True, env={}))


def begin(wire: Wire) -> None:
    """Waits until sandboxes are forks with libraries imported."""
    while "hits" not in (now := wire.pool()) or now["hits"] < 4:
        wire.stocked(1)
        time.sleep(1.0)  # longer than the pool waits before it imports anything
        wire.stocked(1)
        wire.run(PANDAS, keep_session=False)
    wire.stocked(1)


def first_results(wire: Wire, code: str) -> tuple[list[float], list[float], list[float]]:
    """Seconds to the first result of a new session from stock, of one that comes when the stock is empty, and of bare
    Python, in turn."""
    stocked, direct, floor = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        wire.stocked(1)
        stocked.append(wire.first(code))
        floor.append(bare())
        wire.stocked(1)
        first = wire.run(PRINT)["session_id"]  # takes the one that is warm; the next is made only a moment later
        direct.append(wire.first(code))
        wire.close(first)
        floor.append(bare())
    return stocked, direct, floor


def sustained(wire: Wire, code: str) -> float:
    """Fresh sandboxes a second, so many at once."""
    begun, made = time.perf_counter(), 0
    for _ in range(AT_ONCE):
        wire.start(code, keep_session=False)
    while time.perf_counter() < begun + SUSTAINED:
        assert wire.receive()["result"]["structuredContent"]["status"] == "ok"
        made += 1
        wire.start(code, keep_session=False)
    rate = made / (time.perf_counter() - begun)
    for _ in range(AT_ONCE):
        wire.receive()
    return rate


def stateful(wire: Wire) -> tuple[list[float], list[float]]:
    session = wire.run("x = 0")["session_id"]
    ours, floor = list[float](), list[float]()
    for _ in range(ROUNDS * 5):
        ours.append(timed(lambda: wire.run("x += 1", session_id=session)))
        if len(ours) % 5 == 0:
            floor.append(bare())
    wire.close(session)
    return ours, floor


def idle(wire: Wire) -> tuple[float, float]:
    """Bytes of memory of the machine for each idle session, with pandas imported, and after a groupby in each."""
    wire.stocked(1)
    before = available()
    sessions = [wire.run(f"{PREPARED}x = 1")["session_id"] for _ in range(IDLE)]
    wire.stocked(1)
    after = available()
    for session in sessions:
        wire.run(GROUPED, session_id=session)
    grouped = available()
    for session in sessions:
        wire.close(session)
    return (before - after) / IDLE, (before - grouped) / IDLE


def available() -> int:
    """Bytes that the machine has left; counts page tables and other memory of the kernel, too."""
    Path("/proc/sys/vm/drop_caches").write_text("3") if os.geteuid() == 0 else None
    (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")]
    return int(line.split()[1]) * 1024


_FORKS = """
import os, sys, time, matplotlib
matplotlib.use("agg")
import numpy, pandas, matplotlib.pyplot as plt
for line in sys.stdin:
    if not os.fork():
        plt.plot([1, 2, 3])
        plt.savefig(os.devnull, format="png")
        os._exit(0)
    os.wait()
    print(flush=True)
"""


def figures(wire: Wire, python: str) -> tuple[list[float], list[float]]:
    """Seconds to the first figure of a fresh session, and of a bare fork of an interpreter that has all imported."""
    ours, floor = list[float](), list[float]()
    argv = [python, "-c", _FORKS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as forking:
        assert forking.stdin is not None and forking.stdout is not None
        for _ in range(ROUNDS):
            wire.stocked(1)
            ours.append(wire.first(FIGURE))
            start = time.perf_counter()
            forking.stdin.write(b"\n")
            forking.stdin.flush()
            forking.stdout.readline()
            floor.append(time.perf_counter() - start)
    return ours, floor


async def lags(at_once: int) -> tuple[list[float], float]:
    """By how many seconds the event loop is late while so many sandboxes start at once, and how long that takes."""
    late, done = list[float](), anyio.Event()
    async with open_service(load_profile()) as service, anyio.create_task_group() as tasks:
        await service.backend.probe()
        policy = service.profile.policy()
        ended = anyio.Event()

        async def tick() -> None:
            while not done.is_set():
                start = time.perf_counter()
                await anyio.sleep(0.001)
                late.append(time.perf_counter() - start - 0.001)

        async def one(up: list[None]) -> None:
            async with service.backend.sandbox(policy):
                up.append(None)
                if len(up) == at_once:
                    ended.set()
                await ended.wait()

        tasks.start_soon(tick)
        start, up = time.perf_counter(), list[None]()
        for _ in range(at_once):
            tasks.start_soon(one, up)
        await ended.wait()
        seconds = time.perf_counter() - start
        done.set()
    return sorted(late), seconds


def main() -> None:
    """Measures everything and prints the table."""
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    with host_folder() as folder:
        settings = folder / "profile.toml"
        limits = "[sessions]\nmax = 300\nstarts_per_second = 100000.0\n[pool]\nmax = 300\n"
        settings.write_text(f"{limits}stock = 0\n")
        with served(str(settings)) as wire:
            begin(wire)
            ours, direct, floor = first_results(wire, PANDAS)
            row("first result with pandas, from stock", ours, floor, "<= 0.5x bare Python")
            row("the same, without stock", direct, floor, "<= 1.3x")
            ours, direct, floor = first_results(wire, PRINT)
            row("print(1) in a fresh sandbox, from stock", ours, floor, "<= 0.35x")
            row("the same, without stock", direct, floor, "<= 1.0x")
            row("x += 1 in a live session", *stateful(wire), "<= 0.08x")
            places = environment_places(load_profile(), load_languages(), host_folders("", "").cache)
            python = next(path for place in places for path in place.glob("*/bin/python"))
            row("first figure, beside a bare fork", *figures(wire, str(python)), "<= 1.3x")
        settings.write_text(limits)
        with served(str(settings)) as wire:
            begin(wire)
            for code, promise in ((PRINT, ">= 110"), (PANDAS, ">= 75")):
                rates = [sustained(wire, code) for _ in range(3)]
                print(f"fresh sandboxes a second, {code[:14]!r:18}{statistics.median(rates):9.1f}  {promise}")
            late, seconds = anyio.run(lags, 64)
            print(f"ms for 64 starts at once{seconds * 1000:22.1f}")
            print(f"ms that the loop is late, p99{late[len(late) * 99 // 100] * 1000:17.2f}  <= 20")
            first, grouped = idle(wire)
            print(f"MiB for each of {IDLE} idle sessions{first / 2**20:18.2f}  <= 5.5")
            print(f"MiB after a groupby in each{grouped / 2**20:25.2f}  <= 10")


if __name__ == "__main__":
    main()
