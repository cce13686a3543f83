"""How fast the server is: each figure next to the floor that it is compared with, measured in turn in one run."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

from ..environments import ROOT, python_with
from ..mcp.talking import SERVE, server
from ..mcp.wire import CLIENT, message

ROUNDS = 200
STARTS = 30
PROCESSES = 7
STATEFUL = (
    ("python", "x += 1", "<= 3 ms"),
    ("javascript", "x += 1", "<= 3 ms"),
    ("ruby", "x += 1", "<= 3 ms"),
    ("bash", "x=$((x+1))", "<= 3 ms"),
    ("r", "x=x+1", "<= 6 ms"),
)
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
_UNPRIVILEGED: dict[str, Any] = {"user": 200_000, "group": 200_000, "extra_groups": []} if os.geteuid() == 0 else {}


def bare_bubblewrap() -> float:
    """Seconds for `bwrap python3 -c pass`, as an ordinary user."""
    mounts = ("--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev")
    links = [word for path in ("/bin", "/lib", "/lib64") if os.path.islink(path) for word in _link(path)]
    argv = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--as-pid-1", *mounts, *links]
    start = time.perf_counter()
    subprocess.run([*argv, "/usr/bin/python3", "-c", "pass"], env={}, cwd="/", check=True, **_UNPRIVILEGED)
    return time.perf_counter() - start


def _link(path: str) -> tuple[str, str, str]:
    return "--symlink", os.readlink(path), path


def import_of(name: str) -> float:
    """Seconds for a process that only imports a module."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {name}"], check=True)
    return time.perf_counter() - start


def first_answer() -> float:
    """Seconds from starting the server's process to its answer to `initialize`."""
    start = time.perf_counter()
    argv = [sys.executable, "-m", "llm_sandbox_mcp"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(_INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        taken = time.perf_counter() - start
        assert answer["result"]["serverInfo"]["name"], answer
        server.stdin.close()
    return taken


async def stateful(client: Client, language: str, code: str) -> list[float]:
    """Seconds of each run of one statement in a live session."""
    session_id = (await _call(client, code="x=0", language=language))["session_id"]
    return [
        await _timed(lambda: _call(client, code=code, language=language, session_id=session_id)) for _ in range(ROUNDS)
    ]


@asynccontextmanager
async def without_client() -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Measures the seconds of a run of one statement on stdio, with nothing but the lines of the protocol."""

    async def run(**arguments: str) -> dict[str, Any]:
        await talk.send(message("tools/call", {"name": "execute_code", "arguments": arguments}, 2))
        answer: dict[str, Any] = (await talk.receive())["result"]["structuredContent"]
        return answer

    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        await talk.send(message("notifications/initialized"))
        session_id = (await run(code="x = 0"))["session_id"]
        yield lambda: _timed(lambda: run(code="x += 1", session_id=session_id))


@contextmanager
def with_client(python: str | Path) -> Iterator[Callable[[], float]]:
    """Measures the same with the client of the `mcp` package that an interpreter has, in a process of its own."""
    argv = [python, "-m", "tests.clients.programs.timing", *SERVE]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        asked, answered = program.stdin, program.stdout

        def measure() -> float:
            print(file=asked, flush=True)
            return float(answered.readline())

        yield measure
        asked.close()


async def whole_calls() -> None:
    """Prints what calls take with the common clients in Python, which check each result against the tool's schema."""
    lines, second, first = [], [], []
    async with without_client() as line:
        with with_client(sys.executable) as version_2, with_client(python_with("client-mcp-1")) as version_1:
            for _ in range(ROUNDS):
                lines.append(await line())
                second.append(version_2())
                first.append(version_1())
    row("stateful run on stdio, no client (floor)", lines)
    row("the same, client of mcp 2", second, lines)
    row("the same, client of mcp 1", first, lines)


async def one_shot(client: Client) -> tuple[list[float], list[float]]:
    """Seconds of `print(1)` in a new session, and of bare bubblewrap, in turn."""
    ours, floor = [], []
    for _ in range(STARTS):
        floor.append(await anyio.to_thread.run_sync(bare_bubblewrap))
        ours.append(await _timed(lambda: _call(client, code="print(1)", keep_session=False)))
    return ours, floor


async def flood(service: Service) -> tuple[float, float]:
    """MiB by which the peak memory of this process grows while code prints 100 MB, over the limit; and the seconds."""
    warmed = await execute(service, "print(1)")
    await anyio.Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    code = "for _ in range(100): print('y' * 999_999)"
    taken = await _timed(lambda: execute(service, code, session_id=warmed.session_id))
    return (_peak() - before) / 1024, taken


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


async def _call(client: Client, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool("execute_code", arguments)
    assert not result.is_error, result.content
    content: dict[str, Any] | None = result.structured_content
    assert content is not None
    assert content["status"] == "ok", content
    return content


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


def row(what: str, seconds: Sequence[float], floor: Sequence[float] | None = None, promise: str = "") -> None:
    """Prints one line: the median, its spread, and the ratio to the floor."""
    times = sorted(value * 1000 for value in seconds)
    spread = f"{times[len(times) // 10]:8.2f} ..{times[-1 - len(times) // 10]:8.2f}"
    ratio = f"{statistics.median(seconds) / statistics.median(floor):6.2f}x" if floor else ""
    print(f"{what:44}{statistics.median(times):9.2f}{spread:>22}{ratio:>9}  {promise}")


async def main() -> None:
    """Measures everything and prints the table."""
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    async with open_service(load_profile()) as service:
        await service.warm()
        for mode in ("legacy", "auto"):
            async with Client(build_server(service, host_files=False), mode=mode) as client:
                era = "2025" if mode == "legacy" else "2026"
                for language, code, promise in STATEFUL:
                    if all(map(shutil.which, service.languages[language].handler.requires.commands)):
                        times = await stateful(client, language, code)
                        row(f"stateful run, {language}, era {era}", times, promise=promise)
        async with Client(build_server(service, host_files=False)) as client:
            ours, floor = await one_shot(client)
            row("bwrap python3 -c pass (floor)", floor)
            row("fresh one-shot print(1)", ours, floor, "<= 4x")
        grown, taken = await flood(service)
    try:
        await whole_calls()
    except pytest.skip.Exception as reason:
        print(reason)
    imports, answers = [], []
    for _ in range(PROCESSES):
        imports.append(import_of("mcp.server"))
        answers.append(first_answer())
    bare, imported = zip(*((import_of("sys"), import_of("llm_sandbox_mcp")) for _ in range(STARTS)), strict=True)
    row("python -c 'import sys' (floor)", bare)
    row("python -c 'import llm_sandbox_mcp'", imported, bare, "<= 15 ms more")
    row("import of mcp.server (floor)", imports)
    row("server's first answer to initialize", answers, imports, "<= 1.3x")
    print(f"{'100 MB of output, over the limit':44}{taken * 1000:9.2f}   server grew by {grown:.1f} MiB  < 20 MiB")


if __name__ == "__main__":
    anyio.run(main)
