"""A server with few open files says how far they go, and goes on however many sessions come."""

import resource
import sys
from pathlib import Path

import pytest

from tests.mcp.results import answer, refusal

from .command import ARGV, command
from .entry import started

pytestmark = pytest.mark.usefixtures("embedded")

FEW = 256
ROOM = 12
"""Sandboxes for which they are enough."""
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
    """The command, with these limits of open files."""
    return (sys.executable, "-c", LIMITED, str(soft), str(hard), *ARGV)


@pytest.mark.anyio
async def test_as_many_as_may_be_open_are_made_use_of(profile: str) -> None:
    async with started({}, "--profile", profile, argv=limited(FEW, 2 * FEW)) as server:
        code = "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))"
        run = await answer(server.client, "execute_code", code=code)
        assert run["stdout"] == f"({2 * FEW}, {2 * FEW})\n"


@pytest.mark.anyio
async def test_more_sessions_than_there_is_room_for_make_room_for_each_other(profile: str) -> None:
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


def test_doctor_says_how_far_they_go(profile: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        said = command("doctor", "--profile", profile).stdout
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert f"sessions.max is 32: open files for {ROOM}; processes for " in said
    assert f"room: ulimit -n {hard}" in said
