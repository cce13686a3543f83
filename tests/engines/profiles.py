"""The small profile that tests run with on each engine."""

from collections.abc import Mapping
from pathlib import Path

from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.testing import profiles

from .addresses import docker_host, podman_host
from .kubernetes import kubeconfig

MIB = 1 << 20

_NOWHERE = "unix:///nonexistent/engine.sock"
"""An address without an engine, so that tests never use the user's own engine by mistake."""

_NO_FILE = "/nonexistent/kubeconfig"


def small_profile(backend: str, folder: Path, **changes: Mapping[str, object]) -> Profile:
    """`small_profile` of llm_sandbox_mcp.testing, on the engines of the tests only."""
    tables: dict[str, Mapping[str, object]] = {}
    if backend != "embedded":  # each engine is asked whether it runs
        tables["docker"] = {"host": docker_host() or _NOWHERE}
        tables["podman"] = {"host": podman_host() or _NOWHERE}
        tables["kubernetes"] = {"kubeconfig": kubeconfig() or _NO_FILE, "reserved": 0.02, "network": "unchecked"}
    for name, values in changes.items():
        tables[name] = {**tables.get(name, {}), **values}
    return profiles.small_profile(backend, folder, **tables)
