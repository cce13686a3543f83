"""A proxy to an engine in a separate process, so that a test can kill it: for its clients the engine has then ended."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import Process, SocketStream

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


@asynccontextmanager
async def proxy(engine: str, place: Path, *, holds: str = "") -> AsyncIterator[Process]:
    """Starts a proxy at a path. It writes a + once it listens, and another for each request that it holds back
    forever."""
    place.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "tests.containers.proxy", engine.removeprefix("unix://"), str(place), holds]
    async with await anyio.open_process(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"+"
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
    place.unlink(missing_ok=True)


async def _pump(source: SocketStream, target: SocketStream, holds: bytes) -> None:
    with suppress(*_GONE):
        async for data in source:
            if holds and holds in data:
                os.write(1, b"+")
                await anyio.sleep_forever()
            await target.send(data)
    with suppress(*_GONE):
        await target.send_eof()


async def _main(engine: str, place: str, holds: str) -> None:
    async def pass_on(client: SocketStream) -> None:
        with suppress(*_GONE):
            async with client, await anyio.connect_unix(engine) as other, anyio.create_task_group() as tasks:
                tasks.start_soon(_pump, other, client, b"")
                await _pump(client, other, holds.encode())

    listener = await anyio.create_unix_listener(place)
    os.write(1, b"+")
    await listener.serve(pass_on)


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], sys.argv[2], sys.argv[3])
