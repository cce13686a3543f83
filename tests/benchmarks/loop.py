"""How long the event loop of a server is blocked while code floods it and fills folders, measured inside the loop."""

import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

import anyio

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server.content import attach
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.hostile.availability import ATTACKS

PROMISE = 20.0
"""Milliseconds that the loop may be late at most, at the 99th percentile."""
SECONDS = 4.0
_BEAT = 0.001

_FLOOD = "import os\nwhile True:\n    os.write(1, b'x' * 65536)"
_DROPS = "import os\nwhile True:\n    os.write(1, b'x\\n')"
_CROWD = "for number in range(12_000):\n    open(f'f{number}', 'w').close()"
_NESTED = "import os\nos.makedirs('/'.join('d' * 60), exist_ok=True)\nfor n in range(200):\n    os.makedirs(f'{n}/a/b/c', exist_ok=True)"
_RESULT = "'x' * 5_000_000"
_FIGURES = "for number in range(90):\n    open(f'{number}.bin', 'wb').write(b'x' * 200_000)"

_PICTURES = """
import struct, zlib
def chunk(name, content): return struct.pack('>I', len(content)) + name + content + struct.pack('>I', zlib.crc32(name + content))
start = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 8000, 5000, 8, 6, 0, 0, 0))
rows = chunk(b'IDAT', zlib.compress(bytes(5000 * 32_001))[:-1] + b'x') + chunk(b'IEND', b'')
for number in range(50): open(f'{number}.png', 'wb').write(start + rows + bytes(number))
for number in range(50, 90): open(f'{number}.png', 'wb').write(start + chunk(b'tEXt', b'') * 80_000 + rows)
"""


async def lags(work: Callable[[], Awaitable[object]]) -> list[float]:
    """Milliseconds by which sleeps of one millisecond ended late while the work was repeated."""
    late: list[float] = []
    with anyio.move_on_after(SECONDS):
        async with anyio.create_task_group() as tasks:

            async def repeat() -> None:
                while True:
                    await work()

            tasks.start_soon(repeat)
            while True:
                start = time.perf_counter()
                await anyio.sleep(_BEAT)
                late.append(max(0.0, time.perf_counter() - start - _BEAT) * 1000)
    return late


def cases(service: Service, session_id: str) -> Mapping[str, Callable[[], Awaitable[object]]]:
    """The work of each case, by name; the first two cases are floors."""

    def run(code: str, language: str = "python") -> Callable[[], Awaitable[object]]:
        return lambda: execute(service, code, language=language, session_id=session_id)

    async def copy() -> None:
        await service.files.copy_in(session_id, "given.bin", data)
        await service.files.read(session_id, "given.bin")

    async def look() -> None:
        made = await execute(service, _PICTURES, session_id=session_id)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(attach, service, session_id, made.artifacts)

    data = os.urandom(16 << 20)
    return {
        "nothing (floor)": anyio.sleep_forever,
        "code that computes (floor)": run("for _ in range(40_000_000): pass"),
        "a short statement": run("1"),
        "endless output, large writes": run(_FLOOD),
        "endless output, small writes": run(_DROPS),
        "12,000 files": run(_CROWD),
        "a statement next to 12,000 files": run("1"),
        "a C++ program next to 12,000 files": run("int main() {}", "cpp"),
        "nested folders": run(_NESTED),
        "a result of 5 MB": run(_RESULT),
        "a forged report of nested lists": run(ATTACKS["flood: a report of nested lists"].code),
        "90 artifacts, 18 MB": run(_FIGURES),
        "90 broken pictures, looked at by ten": look,
        "16 MiB in and out": copy,
    }


async def main() -> int:
    """Prints a line for each case; returns 1 if a case is above what is promised."""
    above = 0
    print(f"{'the event loop is late by':40}{'p50 ms':>9}{'p99 ms':>9}{'worst':>9}  promised, p99")
    async with open_service(load_profile()) as service:
        session_id = (await execute(service, "1")).session_id
        for name, work in cases(service, session_id).items():
            late = await lags(work)
            p99 = statistics.quantiles(late, n=100)[98]
            above += p99 > PROMISE
            print(f"{name:40}{statistics.median(late):9.2f}{p99:9.2f}{max(late):9.1f}  <= {PROMISE:.0f} ms", flush=True)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
