"""The disk of an engine is full: its refusals are reported with the fix, and everything works again once there is
room."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import ImageFailed, StartFailed
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.deadlines import within
from tests.disks import fill, small_disk
from tests.engines import small_profile, spare
from tests.engines.spare import IMAGE, Spare

from .engines import Watched, until

pytestmark = pytest.mark.anyio

SIZE = "512m"
"""Room for the base image, and for its archive while Podman loads it."""
SOON = 10.0
GONE = 60.0
FIX = "; free disk space where {} keeps its images and containers"


@pytest.fixture
def disk(engine: str) -> Iterator[Path]:
    with small_disk(spare.lone_place(engine), SIZE) as mounted:
        yield mounted


@pytest.fixture
def lone(engine: str, disk: Path) -> Iterator[Spare]:
    """An engine whose disk only this test fills."""
    with spare.lone(engine) as running:
        yield running


def users(disk: Path) -> set[int | None]:
    """The processes that have the disk's path on their command line."""
    found: set[int | None] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if str(disk) in (process / "cmdline").read_text():
                found.add(int(process.name))
    return found


async def test_sessions_that_run_go_on_and_refusals_say_why(engine: str, lone: Spare, disk: Path, folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "own/Dockerfile").write_text(f"FROM {IMAGE}\nRUN head -c 5000000 /dev/zero >/large\n")
    built = {"images": {"bash": "llm-sandbox-mcp-own"}, "dockerfiles": {"bash": str(folder / "own/Dockerfile")}}
    host = {engine: {"host": lone.address}}
    profile = small_profile(engine, folder, containers={"image": IMAGE, **built}, **host)
    watched = Watched(lone.address, folder / "runtime")
    async with open_service(profile) as service:
        session = (await execute(service, "x = 41")).session_id
        filler = fill(disk)
        assert (await execute(service, "x + 1", session_id=session)).result == "42"
        with within(SOON), pytest.raises(StartFailed, match=f"{IMAGE} failed on {engine} .*no space left") as refused:
            await execute(service, "1")
        assert str(refused.value).endswith(FIX.format(engine))
        with within(SOON), pytest.raises(ImageFailed, match=f"cannot be built by {engine} .*no space left") as failed:
            await execute(service, "echo 1", language="bash")
        assert str(failed.value).endswith(FIX.format(engine))
        filler.unlink()
        assert (await execute(service, "6 * 7")).result == "42"
        assert (await execute(service, "echo 42", language="bash")).stdout.text == "42\n"
    # Podman's own processes access its containers again seconds after their end, even if the disk is gone by then.
    await until(lambda: not watched.now() and users(disk) == {lone.daemon.pid()}, GONE)
