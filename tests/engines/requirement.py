"""Whether a backend works on this machine, and what it means for a test when it does not."""

import os
import re
from typing import NoReturn

import pytest

from llm_sandbox_mcp.backends import open_backend

from .profiles import host_folder, small_profile, surroundings

REQUIRE = "SANDBOX_REQUIRE"
"""Environment variable with the names of backends, and of what else tests need, whose absence is a failure and not a
reason to skip."""

_obstacles: dict[str, str] = {}


def required() -> set[str]:
    """What must be here."""
    return set(re.split(r"[\s,]+", os.environ.get(REQUIRE, ""))) - {""}


def absent(backend: str, reason: str) -> NoReturn:
    """Skips the test, or fails it where the backend is required."""
    message = f"{backend} does not work here: {reason}"
    if backend in required():
        pytest.fail(message)
    pytest.skip(message)


async def need(backend: str) -> None:
    """Returns when the backend works here; finds out once for each."""
    if backend not in _obstacles:
        with host_folder() as folder:
            profile = small_profile(backend, folder)
            async with open_backend(profile, surroundings(folder)) as opened:
                checks = await opened.probe()
        missing = [f"{check.detail}; {check.mend}" for check in checks if check.state == "missing"]
        _obstacles[backend] = "; ".join(missing)
    if _obstacles[backend]:
        absent(backend, _obstacles[backend])
