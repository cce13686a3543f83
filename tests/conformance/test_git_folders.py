"""Git reads the copy of a repository in a folder of the operator's, without its secrets, and writes nothing there."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.repositories import COMMANDS, copy_git, git, make_repository, state

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("git", path="/usr/bin") is None, reason="there is no git in /usr/bin"),
]
# The images need not have git; and where the folder is mounted, code may not start programs in it.
START = """
import os, shutil, subprocess
own = "/sandbox/.git-program"
shutil.copytree("/data/programs", own)
def git(command):
    loader, path, git = [f"{{own}}/{{name}}" for name in ("{loader}", "", "git")]
    words = [loader, "--library-path", path, git, "-C", "/data/data", *command.split()]
    print(subprocess.run(words, stdout=-1, stderr=-2, text=True).stdout, end="")
"""


@pytest.fixture(params=["", ":rw"])
def changes(request: pytest.FixtureRequest, folder: Path) -> dict[str, Mapping[str, object]]:
    return {"files": {"folders": [f"{folder}/data{request.param}", f"{folder}/programs"]}, "pool": {"min": 0}}


async def test_git_reads_a_copied_repository_without_its_secrets_and_writes_nothing(
    profile: Profile, folder: Path
) -> None:
    data, programs = folder / "data", folder / "programs"
    data.mkdir()
    programs.mkdir()
    start = START.format(loader=copy_git(programs))
    make_repository(data)
    git(data, "remote", "set-url", "origin", "https://me:s3cret@host.example/project.git")
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            before = state(data)
            session = (await execute(service, start)).session_id
            for command, expected in COMMANDS.items():
                printed = await run(service, f"git({command!r})", session)
                assert {*expected.splitlines()} <= {*printed.splitlines()}, printed
            found = await run(service, "print(os.system('grep -r s3cret /data/data/.git'))", session)
            assert found == f"{1 << 8}\n"
            assert "Permission denied" in await run(service, "git('add new')", session)
            assert state(data) == before
            # What the person does with git is seen by the next run, also where code has made its copy writable.
            await run(service, "os.system('chmod -R u+w /data/data/.git; rm -r /data/data/.git/HEAD')", session)
            git(data, "add", ".")
            git(data, "commit", "-qm", "third")
            printed = await run(service, "git('log --format=%s')", session)
            assert "fatal" in printed or printed == "third\nsecond\nfirst\n"
            assert not [*data.rglob("*.from-code*")]


async def run(service: Service, code: str, session_id: str) -> str:
    """What code prints."""
    return (await execute(service, code, session_id=session_id)).stdout.text
