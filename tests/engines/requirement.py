"""Whether a backend works on this machine; when it does not, a test is skipped or, if it is required, fails."""

import os
import re
from collections.abc import Iterable
from typing import NoReturn

import pytest

from llm_sandbox_mcp.backends.base import Check
from llm_sandbox_mcp.backends.embedded import probe
from llm_sandbox_mcp.testing.profiles import host_folder, surroundings
from llm_sandbox_mcp.wiring import open_backend

from .profiles import small_profile

REQUIRE = "SANDBOX_REQUIRE"
"""Environment variable with the names of backends, and of other things that tests need: if one of them is missing, its
tests fail instead of being skipped."""

_found: dict[str, list[Check]] = {}


def required() -> set[str]:
    """The names in SANDBOX_REQUIRE."""
    return set(re.split(r"[\s,]+", os.environ.get(REQUIRE, ""))) - {""}


def absent(backend: str, reason: str) -> NoReturn:
    """Skips the test, or fails it when the backend is required."""
    message = f"{backend} does not work here: {reason}"
    if backend in required():
        pytest.fail(message)
    pytest.skip(message)


async def need(backend: str) -> None:
    """Returns if the backend works here, else skips or fails the test; each backend is probed once."""
    if backend not in _found:
        with host_folder() as folder:
            profile = small_profile(backend, folder)
            async with open_backend(profile, surroundings(folder)) as opened:
                _found[backend] = await opened.probe()
    _absent_if(backend, [check for check in _found[backend] if check.state == "missing"])


def need_control_groups() -> None:
    """Returns if limits apply to all processes of a bubblewrap sandbox together. Call `need` first."""
    _absent_if("cgroups", without_control_groups())


def without_control_groups() -> list[Check]:
    """The checks that explain why limits apply only to each process; empty if cgroups work. Call `need` first."""
    return [check for check in _found.get("embedded", ()) if check.name == "limits" and check.state != "ok"]


def need_open_network() -> None:
    """Returns if bubblewrap's sandboxes can have an open network."""
    _absent_if("slirp4netns", [check for check in probe.open_network("slirp4netns") if check.state != "ok"])


def _absent_if(name: str, obstacles: Iterable[Check]) -> None:
    if reason := "; ".join(f"{check.detail}; {check.fix}" for check in obstacles):
        absent(name, reason)
