"""A host's configuration entry for LLM Sandbox's server, with only the command replaced, starts and runs code."""

import re

import pytest

from tests.mcp.results import answer

from .command import called, ran
from .entry import started

pytestmark = pytest.mark.anyio

MIB = 1 << 20


@pytest.mark.usefixtures("embedded")
async def test_an_entry_without_variables_runs_on_the_available_backend_without_warnings() -> None:
    async with started({}) as server:
        assert await server.prints("echo $((6 * 7))") == "42\n"
        assert server.deprecated() == []


@pytest.mark.usefixtures("embedded", "control_groups")
async def test_limits_of_an_entry_apply_without_a_daemon() -> None:
    env = {"BACKEND": "bubblewrap", "SANDBOX_MEMORY": "96m", "SANDBOX_CPUS": "1", "SANDBOX_READ_ONLY": "true"}
    async with started(env) as server:
        shown = await server.profile()
        assert (shown["backend"], shown["limits"]["memory"], shown["limits"]["cpus"]) == ("embedded", 96 * MIB, 1.0)
        assert await server.prints("echo $((6 * 7))") == "42\n"
        hungry = await answer(server.client, "execute_code", code="head -c 200000000 /dev/zero | tail", language="bash")
        assert hungry["status"] == "out_of_memory"
        assert server.deprecated() == ["BACKEND", "SANDBOX_READ_ONLY", "SANDBOX_MEMORY", "SANDBOX_CPUS"]


@pytest.mark.usefixtures("embedded")
async def test_a_named_profile_takes_precedence_over_the_variables() -> None:
    env = {"BACKEND": "kubernetes", "SANDBOX_MEMORY": "4g", "SANDBOX_PRIVILEGED": "true"}
    for more, options in (({}, ["--profile", "strict"]), ({"LLM_SANDBOX_PROFILE": "strict"}, [])):
        async with started(env | more, *options) as server:
            shown = await server.profile()
            assert (shown["backend"], shown["limits"]["memory"]) == ("embedded", 512 * MIB)
            assert server.deprecated() == ["BACKEND", "SANDBOX_MEMORY", "SANDBOX_PRIVILEGED"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BACKEND", "nsjail"),
        ("SANDBOX_PRIVILEGED", "true"),
        ("SANDBOX_READ_ONLY", "false"),
        ("SANDBOX_MEMORY", "\x1b[m"),
    ],
)
def test_a_setting_that_is_not_supported_stops_the_start_with_one_line(
    name: str, value: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    done = called("serve", "--transport", transport)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"llm-sandbox-mcp: {name}: '")
    assert "; " in line
    assert "\x1b" not in line


@pytest.mark.usefixtures("embedded")
def test_only_the_server_uses_the_variables() -> None:
    done = ran("run", "--language", "bash", "-c", "echo on", BACKEND="nsjail", SANDBOX_PRIVILEGED="true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")
    assert 'memory = "2GiB"' in called("profile", "show", SANDBOX_MEMORY="4g").stdout


@pytest.mark.usefixtures("open_network")
def test_doctor_checks_the_settings_of_the_server_and_reports_each_variable() -> None:
    done = ran("doctor", SANDBOX_NETWORK_MODE="bridge", KEEP_TEMPLATE="true", SANDBOX_PRIVILEGED="true")
    assert done.returncode in (0, 1), done
    assert re.search(r"\ncode's network +ok +open", done.stdout), done.stdout
    assert re.search(r"\nSANDBOX_NETWORK_MODE +degraded +'bridge' is applied\n", done.stdout), done.stdout
    assert '\n  SANDBOX_NETWORK_MODE: set network.mode = "open" in a profile\n' in done.stdout
    assert re.search(r"\nKEEP_TEMPLATE +degraded +images stay", done.stdout), done.stdout
    assert re.search(r"\nSANDBOX_PRIVILEGED +missing +'true' is not available", done.stdout), done.stdout
