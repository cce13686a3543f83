"""Git reads the repositories in folders that are mounted, on bubblewrap, and writes nothing there."""

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, small_profile
from tests.repositories import COMMANDS, make_repository, state

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("git", path="/usr/bin") is None, reason="there is no git in /usr/bin"),
]


@dataclass(frozen=True)
class Shown:
    """A service whose code sees a folder with a repository."""

    service: Service
    data: Path

    async def git(self, command: str, language: str, session_id: str = "") -> tuple[str, str]:
        """What git prints on both streams when code starts it; and the session."""
        if language == "python":
            words = ["git", "-C", "/data/data", *command.split()]
            code = f"import subprocess as s; print(s.run({words}, stdout=-1, stderr=-2, text=True).stdout, end='')"
        else:
            code = f"git -C /data/data {command} 2>&1"
        done = await execute(self.service, code, language=language, session_id=session_id)
        return done.stdout.text, done.session_id


@pytest.fixture
async def shown(embedded: None) -> AsyncIterator[Shown]:
    with host_folder() as folder, anyio.fail_after(60):
        data = folder / "data"
        data.mkdir()
        make_repository(data)
        profile = small_profile("embedded", folder, files={"folders": [str(data)]}, pool={"min": 0})
        async with open_service(profile) as service:
            yield Shown(service, data)


@pytest.mark.parametrize("language", ["python", "bash"])
async def test_git_reads_a_mounted_repository_and_changes_nothing(shown: Shown, language: str) -> None:
    before = state(shown.data)
    session = ""
    for command, expected in COMMANDS.items():
        printed, session = await shown.git(command, language, session)
        if command in ("diff", "show --stat --oneline --format=%s HEAD"):
            assert {*expected.splitlines()} <= {*printed.splitlines()}, printed
        else:
            assert printed == expected
    assert state(shown.data) == before


async def test_code_cannot_change_a_mounted_repository(shown: Shown) -> None:
    before = state(shown.data)
    printed, session = await shown.git("add new", "bash")
    assert "Read-only file system" in printed
    printed, _ = await shown.git("config user.name other", "bash", session)
    assert "Read-only file system" in printed
    assert state(shown.data) == before


async def test_a_copy_of_the_repository_in_the_sandbox_can_be_changed(shown: Shown) -> None:
    commit = "git -c user.name=Code -c user.email=code@host.example commit -qm third"
    code = (
        f"cp -r /data/data mine && cd mine && git add new && {commit} && git log --format=%s && git status --porcelain"
    )
    done = await execute(shown.service, code, language="bash")
    assert (done.stdout.text, done.exit_code) == ("third\nsecond\nfirst\n M changed\n", 0), done.stderr


@pytest.mark.parametrize("views", [True, False])
async def test_the_profiles_own_environment_comes_before_that_for_git(embedded: None, views: bool) -> None:
    with host_folder() as folder, anyio.fail_after(60):
        (folder / "data").mkdir()
        folders = {"folders": [str(folder / "data")] if views else []}
        profile = small_profile("embedded", folder, files=folders, pool={"min": 0})
        own = profile.model_copy(update={"languages": {"bash": LanguageSection(env={"GIT_OPTIONAL_LOCKS": "1"})}})
        for made, expected in ((profile, "GIT_OPTIONAL_LOCKS=0\n" if views else ""), (own, "GIT_OPTIONAL_LOCKS=1\n")):
            async with open_service(made) as service:
                done = await execute(service, "env | grep ^GIT_ | sort", language="bash")
                assert done.stdout.text == expected
