"""Times short runs with the client of the `mcp` package, of either version, on stdio.

Its arguments are the command of the server. For each line that it reads, it makes one run and writes the seconds.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client

from .scenario import EXECUTE, SESSION, found


@asynccontextmanager
async def calling(command: list[str]) -> AsyncIterator[Callable[[str, dict[str, Any]], Awaitable[Any]]]:
    server = StdioServerParameters(command=command[0], args=command[1:])
    if hasattr(mcp, "Client"):
        async with mcp.Client(server) as client:
            yield client.call_tool
    else:
        async with stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            yield session.call_tool


async def main() -> None:
    async with calling(sys.argv[1:]) as call:
        session_id = found(SESSION, (await call(EXECUTE, {"code": "x = 0"})).content[0].text)
        while await asyncio.to_thread(sys.stdin.readline):
            began = time.perf_counter()
            result = await call(EXECUTE, {"code": "x += 1", "session_id": session_id})
            taken = time.perf_counter() - began
            assert result.content[0].text.startswith("session: "), result
            print(taken, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
