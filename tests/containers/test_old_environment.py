"""An entry of an MCP host for LLM Sandbox's server in containers runs code when only its command is replaced with
ours."""

import pytest

from tests.cli.entry import started
from tests.engines import MIB, docker_host, need, podman_host

pytestmark = pytest.mark.anyio


async def test_the_entry_for_docker_runs_code_in_a_container() -> None:
    await need("docker")
    async with started({"BACKEND": "docker", "DOCKER_HOST": docker_host() or ""}) as server:
        assert (await server.profile())["backend"] == "docker"
        assert await server.prints("echo $((6 * 7))") == "42\n"
        assert server.deprecated() == ["BACKEND"]


async def test_the_entry_for_podman_with_all_hardening_settings_runs_code_in_a_container() -> None:
    await need("podman")
    env = {
        "BACKEND": "podman",
        "DOCKER_HOST": podman_host() or "",
        "SANDBOX_NETWORK_MODE": "none",
        "SANDBOX_READ_ONLY": "true",
        "SANDBOX_CAP_DROP": "ALL",
        "SANDBOX_SECURITY_OPT": "no-new-privileges:true",
        "SANDBOX_MEMORY": "4g",
        "SANDBOX_CPU_COUNT": "1",
    }
    async with started(env) as server:
        shown = await server.profile()
        assert (shown["backend"], shown["network"]) == ("podman", {"mode": "none"})
        assert (shown["limits"]["memory"], shown["limits"]["cpus"]) == (4096 * MIB, 1.0)
        assert await server.prints("touch /x 2>/dev/null || echo $((6 * 7))") == "42\n"
        assert sorted(server.deprecated()) == sorted(env)
