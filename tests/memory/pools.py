"""Pools on the backend in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.pool.pool import Pool
from llm_sandbox_mcp.runs.interpreter import Interpreter
from llm_sandbox_mcp.runs.interpreters import Interpreters
from tests.memory.backend import HANDLERS, MemoryBackend
from tests.pools import open_pool

DAY = 86400.0
LANGUAGE = load_languages([str(HANDLERS)])["script"]


def places_of(language: str) -> Places:
    """The language `script` under another name."""
    return Places(replace(LANGUAGE, handler=LANGUAGE.handler.model_copy(update={"name": language})))


class Warming:
    """Starts interpreters, unless `failure` is set; all languages of these tests have the same one."""

    failure: Exception | None = None
    gate: anyio.Event | None = None
    """If given, a start waits until it is set."""

    async def __call__(self, interpreters: Interpreters, language: str) -> Interpreter:
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return await interpreters.start(places_of(language))


@asynccontextmanager
async def opened(engine: MemoryBackend, warming: Warming, **changes: Any) -> AsyncIterator[Pool]:
    async with open_pool(engine, warming, within=DAY, **changes) as pool:
        yield pool
    assert engine.live == {}
