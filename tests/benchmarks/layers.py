"""What the layers of isolation cost: sandboxes with all layers, in turn with sandboxes without the optional layers.

The optional layers are the filter of system calls and Landlock. A sandbox always has namespaces, mounts, users and
control groups.
"""

import struct
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from unittest import mock

import anyio

from llm_sandbox_mcp.backends.embedded import landlock
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

from .pool import profile
from .speed import row

_REFUSED = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); libc.syscall(425, 1, 0); ctypes.get_errno()"
"""A system call whose result depends on whether the filter is active."""
STARTS = 60
RUNS = 400
_ALLOW_ALL = struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)


@asynccontextmanager
async def without_layers() -> AsyncIterator[Service]:
    """Opens a service whose sandboxes do not have the optional layers."""
    async with AsyncExitStack() as scope:
        with (
            mock.patch("llm_sandbox_mcp.backends.bpf.program", return_value=_ALLOW_ALL),
            mock.patch.object(landlock, "version", return_value=0),
        ):
            service = await scope.enter_async_context(open_service(profile(min=0)))
            # After the first run the service has chosen its layers, and the mocks are no longer needed.
            await execute(service, "print(1)", keep_session=False)
        yield service


async def fresh(service: Service) -> float:
    """Seconds for one program in a new sandbox."""
    start = time.perf_counter()
    run = await execute(service, "print(1)", keep_session=False)
    taken = time.perf_counter() - start
    assert run.status == "ok", run
    await service.pool_until(lambda now: now.closing == 0)
    return taken


async def stateful(service: Service, session_id: str) -> float:
    """Seconds for one statement that reads a file, in a live session."""
    start = time.perf_counter()
    await execute(service, "x = open('/etc/passwd').read()", session_id=session_id)
    return time.perf_counter() - start


async def main() -> None:
    """Prints the figures of both kinds of sandboxes, with their ratios."""
    print(f"{'layers of isolation':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    async with without_layers() as bare, open_service(profile(min=0)) as whole:
        starts: tuple[list[float], list[float]] = [], []
        for _ in range(STARTS):
            for service, times in zip((whole, bare), starts, strict=True):
                times.append(await fresh(service))
        row("fresh sandbox, no optional layers (floor)", starts[1])
        row("fresh sandbox", *starts, "<= 1.3x")
        assert (await execute(bare, _REFUSED)).result != (await execute(whole, _REFUSED)).result
        sessions = [(await execute(service, "x = 0")).session_id for service in (whole, bare)]
        runs: tuple[list[float], list[float]] = [], []
        for _ in range(RUNS):
            for service, session_id, times in zip((whole, bare), sessions, runs, strict=True):
                times.append(await stateful(service, session_id))
        row("stateful run, no optional layers (floor)", runs[1])
        row("stateful run", *runs, "<= 1.1x")


if __name__ == "__main__":
    anyio.run(main)
