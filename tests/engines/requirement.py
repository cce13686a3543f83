"""Whether a backend works on this machine, and what it means for a test when it does not."""

import os
import re
from collections.abc import Iterable
from typing import NoReturn

import pytest

from llm_sandbox_mcp.backends import open_backend
from llm_sandbox_mcp.backends.base import Check
from llm_sandbox_mcp.backends.embedded import probe
from llm_sandbox_mcp.testing.profiles import host_folder, surroundings

from .profiles import small_profile

REQUIRE = "SANDBOX_REQUIRE"
"""Environment variable with the names of backends, and of what else tests need, whose absence is a failure and not a
reason to skip."""

_found: dict[str, list[Check]] = {}


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
    if backend not in _found:
        with host_folder() as folder:
            profile = small_profile(backend, folder)
            async with open_backend(profile, surroundings(folder)) as opened:
                _found[backend] = await opened.probe()
    _hold(backend, [check for check in _found[backend] if check.state == "missing"])


def need_control_groups() -> None:
    """Returns where limits hold all processes of a bubblewrap's sandbox together; `need` was asked before."""
    _hold("cgroups", without_control_groups())


def without_control_groups() -> list[Check]:
    """Why limits hold single processes only; nothing where they do not. `need` was asked before."""
    return [check for check in _found.get("embedded", ()) if check.name == "limits" and check.state != "ok"]


def need_open_network() -> None:
    """Returns where bubblewrap's sandboxes can be given an open network."""
    _hold("slirp4netns", [check for check in probe.open_network("slirp4netns") if check.state != "ok"])


def _hold(name: str, obstacles: Iterable[Check]) -> None:
    if reason := "; ".join(f"{check.detail}; {check.fix}" for check in obstacles):
        absent(name, reason)
