"""Checks the server with the official tools: the conformance suite, and the schema check of the inspector.

Both are npm packages, and need a newer Node than many systems have. They are downloaded once, into a cache outside of
the checkout, which takes most of the time. If the download fails, these tests are skipped with the reason.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import pytest

from ..environments import NO_CACHE, Npm, npm
from .serving import Server, launch, stop

# The first test downloads the tools.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SCOPE = "@modelcontextprotocol"
PACKAGES = (f"{SCOPE}/conformance@0.2.0-alpha.12", f"{SCOPE}/inspector@2.12.0")


def named_like(*scenarios: str) -> list[str]:
    """The check of each scenario that has the name of the scenario; its other checks are about the wire format."""
    return [f"{scenario}:{scenario}" for scenario in scenarios]


def checks(scenario: str, *names: str) -> list[str]:
    return [f"{scenario}:{name}" for name in names]


PROMPTS = named_like(
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-with-image",
    "prompts-get-embedded-resource",
)
RESOURCES = named_like("resources-read-text", "resources-read-binary", "resources-templates-read")
TOOLS = named_like(
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
)
LEFT_OUT: Mapping[str, Mapping[str, Sequence[str]]] = {
    "2025-11-25": {
        "calls a tool that only the suite's own server has": [
            *TOOLS,
            *named_like("tools-call-sampling", "tools-call-elicitation"),
            *checks("elicitation-sep1034-defaults", "elicitation-sep1034-general"),
            *checks("elicitation-sep1330-enums", "elicitation-sep1330-general"),
        ],
        "reads a resource that only the suite's own server has": RESOURCES,
        "asks for prompts that only the suite's own server has": PROMPTS,
        "asks for log messages, which we do not send": named_like("logging-set-level", "tools-call-with-logging"),
    },
    "2026-07-28": {
        "calls a tool that only the suite's own server has": [
            *TOOLS,
            *checks("input-required-result-basic-elicitation", "sep-2322-elicitation-incomplete"),
            *checks("input-required-result-basic-sampling", "sep-2322-sampling-incomplete"),
            *checks("input-required-result-basic-list-roots", "sep-2322-list-roots-incomplete"),
            *checks("input-required-result-request-state", "sep-2322-request-state-incomplete"),
            *checks("input-required-result-multiple-input-requests", "sep-2322-multiple-inputs-incomplete"),
            *checks("input-required-result-multi-round", "sep-2322-multi-round-r1"),
            *checks("input-required-result-result-type", "sep-2322-result-type-included"),
            *checks("input-required-result-tampered-state", "sep-2322-reject-tampered-state"),
            *checks("input-required-result-missing-input-response", "sep-2322-missing-response-rerequests"),
            *checks("input-required-result-ignore-extra-params", "sep-2322-ignore-unexpected-params"),
            *checks("input-required-result-capability-check", "sep-2322-respect-client-capabilities"),
            *checks(
                "server-stateless",
                "sep-2575-server-rejects-undeclared-capability",
                "sep-2575-missing-capability-http-400",
                "sep-2575-http-server-no-independent-requests-on-stream",
                "sep-2575-server-no-log-without-loglevel",
            ),
        ],
        "reads a resource that only the suite's own server has": RESOURCES,
        "asks for prompts that only the suite's own server has": [
            *PROMPTS,
            *checks("input-required-result-non-tool-request", "sep-2322-non-tool-incomplete"),
        ],
    },
}
"""The checks of each requirement set that cannot apply, by reason. The suite fails if one of them passes, or if any
other check fails or warns. It does not count checks that it calls pending or an extension, such as tasks."""

TASKS: Mapping[str, Sequence[str]] = {
    "tasks-capability-negotiation": (),
    # None of our calls ends in an error of the protocol after it has become a task.
    "tasks-lifecycle": ["sep-2663-tasks-get-status-failed"],
    "tasks-wire-fields": (),
    "tasks-request-state-removal": (),
    # It compares the whole text of a result.
    "tasks-request-headers": ["tasks-headers-tolerate-mcp-method-on-tools-call"],
    # It calls a tool that asks the user something, which none of ours does.
    "tasks-dispatch-and-envelope": ["tasks-result-type-complete-on-non-task-responses"],
}
"""The scenarios about tasks, and the checks that cannot apply. Left out: tools that ask the user something or that are
only offered as tasks (tasks-mrtr-input, tasks-mrtr-composition, tasks-required-task-error), which we do not have; and
tasks-status-notifications, which the suite itself skips."""


class Official:
    """The installed tools."""

    def __init__(self, packages: Npm) -> None:
        self._packages = packages

    async def run(self, program: str, *arguments: str, folder: Path) -> CompletedProcess[bytes]:
        """Runs a tool in a folder, and waits for its end."""
        command = [str(self._packages.node), str(self._packages.modules / ".bin" / program), *arguments]
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_COLOR": "1", **NO_CACHE}
        return await anyio.run_process(command, check=False, cwd=folder, env=env)


@pytest.fixture(scope="module")
def packages() -> Npm:
    return npm("npm", *PACKAGES)


@pytest.fixture
async def official(packages: Npm) -> AsyncIterator[Official]:
    with anyio.fail_after(120):
        yield Official(packages)


@pytest.mark.parametrize("revision", LEFT_OUT)
async def test_the_server_conforms_to_each_revision_of_the_protocol(
    official: Official, server: Server, revision: str, tmp_path: Path
) -> None:
    left_out = [check for entries in LEFT_OUT[revision].values() for check in entries]
    expected = tmp_path / "expected.yml"
    expected.write_text(json.dumps({"server": left_out}))  # JSON is YAML too
    done = await official.run(
        "conformance",
        *("server", "--url", f"{server.url}/mcp", "--requirements", revision),
        *("--expected-failures", str(expected), "--output-dir", str(tmp_path / "results")),
        folder=tmp_path,
    )
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, said[said.find("=== SUMMARY ===") :]
    found = [check for path in tmp_path.rglob("checks.json") for check in json.loads(path.read_text())]
    wire = [check["status"] for check in found if check["id"] == "wire-schema-valid"]
    assert len(wire) > 20
    assert set(wire) == {"SUCCESS"}


@pytest.fixture(scope="module")
def task_tools(profile: Path) -> Iterator[Server]:
    """Our server, with the names of tools that the suite calls as tasks."""
    server = launch([sys.executable, "-m", "tests.mcp.task_tools", "--port", "0", "--profile", str(profile)])
    yield server
    assert "Traceback" not in stop(server)


@pytest.mark.parametrize("scenario", TASKS)
async def test_the_server_conforms_to_the_extension_for_tasks(
    official: Official, task_tools: Server, scenario: str, tmp_path: Path
) -> None:
    expected = tmp_path / "expected.yml"
    expected.write_text(json.dumps({"server": checks(scenario, *TASKS[scenario])}))
    done = await official.run(
        "conformance",
        *("server", "--url", f"{task_tools.url}/mcp", "--scenario", scenario),
        *("--expected-failures", str(expected), "--output-dir", str(tmp_path / "results")),
        folder=tmp_path,
    )
    found = [check for path in tmp_path.rglob("checks.json") for check in json.loads(path.read_text())]
    failed = [check["id"] for check in found if check["status"] not in ("SUCCESS", "INFO")]
    assert failed == [*TASKS[scenario]], done.stdout.decode()
    assert len(found) > len(failed) + 1
    assert done.returncode == 0


async def test_the_inspector_finds_no_problem_for_clients_in_the_schemas(
    official: Official, server: Server, tmp_path: Path
) -> None:
    arguments = ("--cli", f"{server.url}/mcp", "--method", "tools/list", "--strict")
    done = await official.run("mcp-inspector", *arguments, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(json.loads(done.stdout)["tools"]) == 5
