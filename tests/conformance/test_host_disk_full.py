"""The host's disk is full where the server keeps its files: errors are clean, and everything works again once there is
room."""

import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import SandboxError, StartFailed
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.disks import fill, small_disk
from tests.engines import changed, need, small_profile
from tests.leftovers import DISK

pytestmark = pytest.mark.anyio

WRITE = "open('{}', 'wb').write(bytes(500_000))\nNone"


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """A file system with little room, for the server's folders."""
    with small_disk(folder / DISK, "4m") as mounted:
        yield mounted


@pytest.fixture
def profile(backend_name: str, folder: Path, disk: Path) -> Profile:
    profile = small_profile(backend_name, folder)
    places = {"runtime": str(disk / "runtime")}
    return changed(profile, server=places)


async def test_runs_go_on_and_say_which_files_could_not_be_kept(
    profile: Profile, disk: Path, backend_name: str
) -> None:
    await need(backend_name)
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            session = (await execute(service, WRITE.format("first"))).session_id
            filler = fill(disk)
            full = await execute(service, WRITE.format("second"), session_id=session)
            assert (full.status, full.session_state, full.artifacts) == ("ok", "kept", ()), full
            (note,) = full.notes
            assert note == (
                "some files were not kept: cannot store 'second': No space left on device; free disk space on the server"
            )
            # Files that were kept before are still there, and no partial file was added.
            assert [artifact.name for artifact in service.files.artifacts(session)] == ["first"]
            assert len((await service.files.read_artifact(session, "first"))[1]) == 500_000
            # A sandbox needs no room on the host's disk.
            assert (await execute(service, "6 * 7", keep_session=False)).result == "42"
            filler.unlink()
            again = await execute(service, WRITE.format("second"), session_id=session)
            assert [artifact.name for artifact in again.artifacts] == ["second"], again
        assert [path for path in disk.rglob("*") if path.is_file()] == []


async def test_a_server_that_has_no_room_to_start_says_so_and_starts_later(
    profile: Profile, disk: Path, backend_name: str
) -> None:
    await need(backend_name)
    with anyio.fail_after(60):
        filler = fill(disk)
        try:
            async with open_service(profile) as service:
                await execute(service, "1")
            # Containers need no room on the host's disk until a file has to be kept.
            assert backend_name != "embedded"
        except SandboxError as error:
            said = str(error)
            assert re.search("No space left on device.*; ", said), said
        filler.unlink()
        async with open_service(profile) as service:
            assert (await execute(service, "6 * 7")).result == "42"


async def test_libraries_that_have_no_room_are_refused_and_prepared_later(
    profile: Profile, folder: Path, disk: Path, backend_name: str
) -> None:
    await need(backend_name)
    if backend_name != "embedded":
        pytest.skip("images contain the libraries that they need")
    # There is no room for anything as large as the package manager itself.
    cached = {"cache": str(disk / "cache"), "runtime": str(folder / "runtime")}
    with anyio.fail_after(60):
        async with open_service(changed(profile, server=cached)) as service:
            for _ in range(2):
                with pytest.raises(
                    StartFailed, match=r"python cannot be prepared in .*: No space left on device; free"
                ):
                    await execute(service, "1")
            assert (await execute(service, "echo 42", language="bash")).stdout.text == "42\n"
            assert [path for path in (disk / "cache").rglob("*") if path.is_file()] == []
            await anyio.run_process(["mount", "-o", "remount,size=256m", str(disk)])
            assert (await execute(service, "6 * 7")).result == "42"
