"""Pools on the backend in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.pool.pool import Pool
from llm_sandbox_mcp.runs.interpreter import Interpreter, start_interpreter
from tests.memory.backend import HANDLERS, MemoryBackend
from tests.pools import open_pool

DAY = 86400.0
SCRIPT = Places(load_languages([str(HANDLERS)])["script"])


class Warming:
    """Starts interpreters, unless `failure` is set; all languages of these tests have the same one."""

    failure: Exception | None = None
    gate: anyio.Event | None = None
    """If given, a start waits until it is set."""

    async def __call__(self, sandbox: Sandbox, language: str) -> Interpreter:
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return await start_interpreter(sandbox, SCRIPT)


@asynccontextmanager
async def opened(engine: MemoryBackend, warming: Warming, **changes: Any) -> AsyncIterator[Pool]:
    async with open_pool(engine, warming, within=DAY, **changes) as pool:
        yield pool
    assert engine.live == {}
