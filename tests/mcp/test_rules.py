"""What a client sees of rules: refusals before anything runs, warnings next to a result, and the rules themselves."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.types import TextResourceContents

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.containers.engines import until
from tests.engines import need
from tests.growth import kept

from .results import answer, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

PROFILE = """
[audit]
file = "{audit}"

[pool]
stock = 0

[rules]
preset = "production"

[[rules.custom]]
name = "no-copies"
severity = "low"
modules = ["copy"]
advice = "values are cheap"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


@pytest.fixture(scope="module")
async def service(anyio_backend: str, folder: Path) -> AsyncIterator[Service]:
    """A service with rules, which all tests share."""
    await need("embedded")
    (folder / "profile.toml").write_text(PROFILE.replace("{audit}", str(folder / "audit.log")))
    async with open_service(load_profile(str(folder / "profile.toml"))) as service:
        await service.warm()
        await execute(service, "1", keep_session=False)  # starts what checks code
        with kept("embedded"):
            yield service


@pytest.fixture
async def client(service: Service, era: str) -> AsyncIterator[Client]:
    with anyio.fail_after(60):
        async with Client(build_server(service, host_files=False), mode=era) as client:
            yield client
        for session in service.sessions.list():
            await service.sessions.close(session.id)
        await service.pool_until(lambda now: not now.closing)


async def test_blocked_code_is_refused_before_it_runs_with_rule_severity_and_line(client: Client) -> None:
    said = await refusal(client, "execute_code", code="print('ran')\n\nimport json, subprocess\n")
    assert "line 3 imports subprocess (rule processes, severity high: " in said
    assert "refused before it ran" in said
    assert "\n" not in said
    assert (await answer(client, "manage_session", action="list"))["sessions"] == []


async def test_what_was_refused_is_in_the_audit_log(client: Client, folder: Path) -> None:
    log = folder / "audit.log"
    # One that no other test, nor this one over the other protocol, has in the log.
    number = 7 + (len(log.read_text().splitlines()) if log.exists() else 0)
    await refusal(client, "execute_code", code="\n" * (number - 1) + "import subprocess")
    await until(lambda: log.exists() and f"line {number} imports" in log.read_text(), 10)
    (line,) = (json.loads(line) for line in log.read_text().splitlines() if f"line {number} imports" in line)
    assert (line["event"], line["language"]) == ("code.refused", "python")
    assert "rule processes" in line["reason"]


async def test_a_refusal_names_at_most_five_findings(client: Client) -> None:
    code = "\n".join(
        f"import os\nos.{name}()" for name in ("system", "popen", "execv", "execl", "fork", "spawnv", "execve")
    )
    said = await refusal(client, "execute_code", code=code)
    assert said.count("severity high") == 5
    assert "and 2 more" in said


async def test_findings_below_the_threshold_are_warnings_next_to_the_result(client: Client) -> None:
    ran = await answer(client, "execute_code", code="import copy\nimport pickle\nprint(1)")
    assert (ran["status"], ran["stdout"]) == ("ok", "1\n")
    assert ran["notes"][0] == "warning: line 1 imports copy (rule no-copies, severity low: values are cheap)"
    assert ran["notes"][1].startswith("warning: line 2 imports pickle (rule serialisation, severity medium")


async def test_code_that_matches_no_rule_runs_without_notes(client: Client) -> None:
    ran = await answer(client, "execute_code", code="print('import subprocess')  # os.system")
    assert (ran["stdout"], ran["notes"]) == ("import subprocess\n", [])


async def test_a_refusal_leaves_the_session_as_it_was(client: Client) -> None:
    first = await answer(client, "execute_code", code="x = 41")
    assert "os.system" in await refusal(
        client, "execute_code", code="x = 0\nimport os\nos.system('ls')", session_id=first["session_id"]
    )
    assert (await answer(client, "execute_code", code="x + 1", session_id=first["session_id"]))["result"] == "42"


async def test_other_languages_have_rules_too(client: Client) -> None:
    said = await refusal(
        client, "execute_code", code="const { exec } = require('node:child_process')", language="javascript"
    )
    assert "line 1 imports child_process" in said


async def test_the_profile_that_clients_read_contains_the_active_rules(client: Client) -> None:
    content = (await client.read_resource("sandbox://profile")).contents[0]
    assert isinstance(content, TextResourceContents)
    shown = json.loads(content.text)["rules"]
    assert shown["block"] == "high"
    (mine,) = [rule for rule in shown["rules"] if rule["name"] == "no-copies"]
    assert mine == {"name": "no-copies", "severity": "low", "modules": ["copy"], "advice": "values are cheap"}
    assert {"processes", "network"} <= {rule["name"] for rule in shown["rules"]}
