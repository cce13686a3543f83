"""Docker and Podman work as on macOS: nothing that only Linux has is used on the server's side."""

from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.cli.command import ARGV, LIMIT
from tests.mcp.results import answer
from tests.other_systems import command_on, environment_on

from .engines import address, profile_file


def test_code_runs_without_what_only_linux_has(engine: str, folder: Path) -> None:
    profile = profile_file(engine, address(engine), folder)
    done = command_on("darwin", "run", "--profile", str(profile), "-c", "print(6 * 7)", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
    code = "import os; os.kill(os.getpid(), 11)"
    done = command_on("darwin", "run", "--profile", str(profile), "-c", code, cwd=folder)
    assert (done.returncode, "Traceback" in done.stderr) == (128 + 11, False)


@pytest.mark.anyio
async def test_a_host_is_served_without_what_only_linux_has(engine: str, folder: Path) -> None:
    profile = profile_file(engine, address(engine), folder)
    program, *arguments = ARGV
    server = StdioServerParameters(
        command=program, args=[*arguments, "--profile", str(profile)], env=environment_on("darwin")
    )
    with anyio.fail_after(LIMIT):
        async with Client(server) as client:
            first = await answer(client, "execute_code", code="n = 41", language="python")
            second = {"code": "n + 1", "language": "python", "session_id": first["session_id"]}
            assert (await answer(client, "execute_code", **second))["result"] == "42"
