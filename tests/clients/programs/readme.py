"""Uses the tools of a block of `docs/pages/hosts.md`, and those of the framework's defaults. The argument is the framework.

It reads the block, calls that belong together, and a longer call. It writes what the tools have shown, as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from importlib import import_module
from typing import Any

from .scenario import EXECUTE, SESSION, Client, Shown, found, shown


async def use(client: Client, read: Mapping[str, Any]) -> dict[str, Any]:
    first = await shown(client, EXECUTE, code=read["assigns"])
    session = found(SESSION, first.text)
    later = await shown(client, EXECUTE, code=read["uses it"], session_id=session)
    long = await shown(client, EXECUTE, code=read["takes long"], session_id=session) if not later.failed else Shown()
    return {"uses it": asdict(later), "takes long": asdict(long)}


async def main() -> None:
    read = json.load(sys.stdin)
    framework = import_module(f".{sys.argv[1]}", __package__)
    defined: dict[str, Any] = {}
    exec(read["block"], defined)
    opened: AbstractAsyncContextManager[Any] = defined["sandbox_tools"]()
    async with opened as tools:
        block = await use(framework.take(tools), read)
    async with framework.defaults() as client:
        defaults = await use(client, read)
    json.dump({"block": block, "defaults": defaults}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
