"""Files of sessions in both directions, with the tools of this machine; what tools do is tested in a sandbox."""

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import BadPath, InvalidArgument, UnknownFile, UnknownSession
from llm_sandbox_mcp.base.open_folders import OpenFolder
from llm_sandbox_mcp.base.principal import ANONYMOUS
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.profiles import small_profile
from llm_sandbox_mcp.wiring import open_service
from tests.outside_backend.plain_backend import Plain, PlainBackend

pytestmark = pytest.mark.anyio

LARGEST, STORED = 3000, 2000


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return small_profile(
        "embedded",
        tmp_path,
        limits={"file_size": LARGEST},
        artifacts={"file_size": STORED},
    )


@pytest.fixture
async def service(profile: Profile) -> AsyncIterator[Service]:
    async with open_service(profile, make=lambda _, surroundings: PlainBackend(Plain(), surroundings)) as opened:
        yield opened


@pytest.fixture
async def session(service: Service) -> str:
    return service.sessions.open(ANONYMOUS, "bash")


async def test_a_file_goes_in_and_out(service: Service, session: str) -> None:
    files = service.files
    added = await files.copy_in(session, "d/a.csv", b"1,2")
    assert (added.name, added.mime_type, added.size) == ("d/a.csv", "text/csv", 3)
    assert await files.read(session, "d/a.csv") == b"1,2"
    assert files.artifacts(session) == ()
    assert (await files.copy_out(session, "d/a.csv")).name == "d/a.csv"
    assert [artifact.name for artifact in files.artifacts(session)] == ["d/a.csv"]
    for part, content in (({}, b"1,2"), ({"offset": 1}, b",2"), ({"length": 2}, b"1,")):
        assert (await files.read_artifact(session, "d/a.csv", **part))[1] == content


@pytest.mark.parametrize("executable", [True, False])
async def test_a_file_can_be_run_only_if_that_is_asked_for(service: Service, session: str, executable: bool) -> None:
    if executable:
        await service.files.copy_in(session, "a", b"", executable=True)
    else:
        await service.files.copy_in(session, "a", b"")
    with tarfile.open(fileobj=io.BytesIO(await service.files.pack(session, "a"))) as packed:
        assert bool(packed.getmember("a").mode & 0o111) == executable


async def test_no_file_is_larger_than_the_limit_of_its_direction(service: Service, session: str) -> None:
    files, too_large = service.files, r"path '{}' has {:.4g}KiB; the limit is {:.4g}KiB"
    into = too_large.format("b", (LARGEST + 1) / 1024, LARGEST / 1024)
    files.check("b", LARGEST)
    await files.copy_in(session, "a", bytes(LARGEST))
    with pytest.raises(BadPath, match=into):
        files.check("b", LARGEST + 1)
    with pytest.raises(BadPath, match=into):
        await files.copy_in(session, "b", bytes(LARGEST + 1))
    for name, size in (("most", STORED), ("more", STORED + 1)):
        await files.copy_in(session, name, bytes(size))
    assert len(await files.read(session, "most")) == STORED
    with pytest.raises(BadPath, match=too_large.format("more", (STORED + 1) / 1024, STORED / 1024)):
        await files.read(session, "more")


async def test_only_regular_files_come_out_one_by_one_and_folders_packed(service: Service, session: str) -> None:
    await service.files.copy_in(session, "d/a", b"1")
    await service.files.make_folder(session, "empty")
    for name in ("d", "empty"):
        with pytest.raises(BadPath, match=f"'{name}' is not a regular file in /sandbox"):
            await service.files.read(session, name)
    with tarfile.open(fileobj=io.BytesIO(await service.files.pack(session, "d"))) as packed:
        assert sorted(packed.getnames()) == ["d", "d/a"]
    for whole in (".", "/sandbox", "./d/.."):
        # This backend has the working directory itself somewhere else.
        with pytest.raises(UnknownFile, match="path '/sandbox' cannot be read"):
            await service.files.pack(session, whole)
    with pytest.raises(UnknownFile, match="path '/sandbox/none' cannot be read"):
        await service.files.pack(session, "none")


async def test_artifacts_of_an_ended_session_stay_until_they_are_deleted(service: Service, session: str) -> None:
    await service.files.copy_in(session, "a", b"1")
    await service.files.copy_out(session, "a")
    assert await service.sessions.close(session) == []
    assert len(service.files.artifacts(session)) == 1
    await service.sessions.clear(session)
    with pytest.raises(UnknownSession):
        service.files.artifacts(session)
    with pytest.raises(UnknownSession):
        await service.sessions.clear(session)


async def test_deleting_the_artifacts_of_an_open_session_keeps_its_files(service: Service, session: str) -> None:
    await service.files.copy_in(session, "a", b"1")
    await service.files.copy_out(session, "a")
    await service.sessions.clear(session)
    assert (service.files.artifacts(session), await service.files.read(session, "a")) == ((), b"1")


async def test_an_engine_without_images_makes_no_templates(service: Service, session: str) -> None:
    with pytest.raises(InvalidArgument, match="the backend plain has no images; name docker or podman"):
        await service.sessions.commit(session, "mine")


async def test_a_reset_drops_files_at_once(service: Service, session: str) -> None:
    await service.files.copy_in(session, "a", b"1")
    with anyio.fail_after(5):
        assert await service.sessions.reset(session) == []
    with pytest.raises(UnknownFile):
        await service.files.pack(session, "a")


async def test_a_file_of_this_machine_goes_in_as_a_plain_file_and_a_hidden_one_only_if_that_is_asked_for(
    service: Service, session: str, tmp_path: Path
) -> None:
    files, folders = service.files, [OpenFolder(str(tmp_path / "open"))]
    (tmp_path / "open").mkdir()
    for name in ("a", ".hidden"):
        (tmp_path / "open" / name).write_text("1")
        (tmp_path / "open" / name).chmod(0o755)
    assert (await files.copy_in_from_host(session, "a", str(tmp_path / "open/a"), folders)).size == 1
    with tarfile.open(fileobj=io.BytesIO(await files.pack(session, "a"))) as packed:
        assert not packed.getmember("a").mode & 0o111
    hidden = str(tmp_path / "open/.hidden")
    with pytest.raises(BadPath):
        await files.copy_in_from_host(session, "h", hidden, folders)
    await files.copy_in_from_host(session, "h", hidden, folders, hidden=True)
