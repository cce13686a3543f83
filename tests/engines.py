"""Which engines a test may count on."""

import functools
import os

import pytest

from llm_sandbox_mcp.backends.embedded import probe


def require(engine: str) -> None:
    """Skips the test with the reason where the engine does not work; fails it where `SANDBOX_REQUIRE` names the engine."""
    reason = _obstacle(engine)
    if reason is None:
        return
    if engine in os.environ.get("SANDBOX_REQUIRE", "").replace(",", " ").split():
        pytest.fail(f"SANDBOX_REQUIRE names {engine}, which does not work here: {reason}")
    pytest.skip(f"{engine} does not work here: {reason}")


@functools.cache
def _obstacle(engine: str) -> str | None:
    known = {"embedded": lambda: probe.obstacle("bwrap")}
    return known[engine]()
