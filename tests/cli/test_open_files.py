"""A server with a low limit of open files reports how many sandboxes fit, and works with any number of sessions."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mcp.results import answer, refusal

from .command import ARGV, command
from .entry import started

pytestmark = pytest.mark.usefixtures("embedded")

FEW = 256
ROOM = 12
"""The number of sandboxes that `FEW` open files allow."""
PROFILE = "[languages.python]\nlibraries = []\n[pool]\nmin = 0\n[sessions]\nmax = 32\n"
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
os.execv(sys.argv[3], sys.argv[3:])
"""


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "profile.toml"
    path.write_text(PROFILE)
    return str(path)


def limited(soft: int, hard: int) -> tuple[str, ...]:
    """The command with these limits of open files."""
    return (sys.executable, "-c", LIMITED, str(soft), str(hard), *ARGV)


@pytest.mark.anyio
async def test_the_server_raises_its_limit_of_open_files_to_the_hard_limit(profile: str) -> None:
    async with started({}, "--profile", profile, argv=limited(FEW, 2 * FEW)) as server:
        code = "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))"
        run = await answer(server.client, "execute_code", code=code)
        assert run["stdout"] == f"({2 * FEW}, {2 * FEW})\n"


@pytest.mark.anyio
async def test_new_sessions_close_the_oldest_if_there_is_no_room_for_all(profile: str) -> None:
    async with started({}, "--profile", profile, argv=limited(FEW, FEW)) as server:
        opened = [
            (await answer(server.client, "execute_code", code=f"x = {number}"))["session_id"] for number in range(32)
        ]
        for number in range(32 - ROOM, 32):
            run = await answer(server.client, "execute_code", code="x", session_id=opened[number])
            assert run["result"] == str(number), (run, server.log.read_text())
        for session in opened[: 32 - ROOM]:
            assert "is not open" in await refusal(server.client, "execute_code", code="x", session_id=session)
        assert "sessions.max is 32, but there is room for only 12 sandboxes (open files)" in server.log.read_text()


@pytest.mark.parametrize(("language", "code"), [("python", "print(6 * 7)"), ("ruby", "puts 6 * 7")])
def test_interpreters_need_few_open_files(profile: str, language: str, code: str) -> None:
    argv = [*limited(100, 100), "run", "--profile", profile, "--language", language, "-c", code]
    assert subprocess.run(argv, capture_output=True, check=True).stdout == b"42\n"


def test_doctor_reports_how_many_sandboxes_the_open_files_allow(profile: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        said = command("doctor", "--profile", profile).stdout
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert f"sessions.max is 32: open files for {ROOM}; processes for " in said
    assert f"room: ulimit -n {hard}" in said
