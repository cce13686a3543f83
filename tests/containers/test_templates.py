"""A session is committed to an image when the operator's code asks for it, and never otherwise."""

import io
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import docker
import pytest

from llm_sandbox_mcp.backends.base import Images
from llm_sandbox_mcp.backends.containers.backend import LABEL as SERVER
from llm_sandbox_mcp.backends.containers.templates import LABEL, checked
from llm_sandbox_mcp.base.errors import CapacityReached, InvalidArgument, StartFailed, UnknownSession
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, open_session
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, need, small_profile
from tests.handlers.indexes import Wheels
from tests.local_index import local_index

pytestmark = pytest.mark.anyio

NAME = "llm-sandbox-mcp-scratch/geo"
BASE = "llm-sandbox-mcp-python"
LIMITS = {"memory": 512 * MIB, "disk": 64 * MIB}

FILL = """
import os, pathlib
os.makedirs('data/empty')
pathlib.Path('data/a.txt').write_text('one')
pathlib.Path('data/holes').open('wb').truncate(32 << 20)
pathlib.Path('run.sh').write_text('echo ran')
os.chmod('run.sh', 0o775)
os.symlink('data/a.txt', 'link')
os.symlink('/tmp', '/home/elsewhere')
pathlib.Path('/home/.settings').write_text('mine')
pathlib.Path('/home/figures/old.png').write_bytes(b'')
pathlib.Path('/tmp/secret').write_text('secret')
x = 41
"""
FOUND = """
import os, pathlib, subprocess
[
    os.path.isdir('data/empty'), pathlib.Path('data/a.txt').read_text(), os.stat('data/holes').st_blocks,
    oct(os.stat('run.sh').st_mode), subprocess.run(['./run.sh'], capture_output=True, shell=True).stdout,
    os.readlink('link'), os.readlink('/home/elsewhere'), pathlib.Path('/home/.settings').read_text(),
    os.listdir('/home/figures'), os.listdir('/tmp'), 'x' in globals(),
    {os.stat(place).st_uid for place in ('data', 'run.sh', '/home/.settings')} == {os.getuid()},
    pathlib.Path('data/new').write_text('can write'),
]
"""
EXPECTED = "[True, 'one', 0, '0o100775', b'ran\\n', 'data/a.txt', '/tmp', 'mine', [], [], False, True, 9]"


@pytest.fixture
def before(client: docker.DockerClient) -> Iterator[set[str]]:
    """The images that existed before the test; templates that the test leaves behind are removed."""
    yield {str(image.id) for image in client.images.list(all=True)}
    for image in client.images.list(filters={"label": LABEL}):
        client.images.remove(str(image.id), force=True)


@asynccontextmanager
async def serving(
    engine: str, folder: Path, image: str = BASE, index: str = "", templates: int = 20
) -> AsyncIterator[Service]:
    containers = {"images": {"python": image}, "templates": templates}
    profile = small_profile(engine, folder, limits=LIMITS, containers=containers)
    sections = {"python": LanguageSection(index=index)}
    with anyio.fail_after(60):
        async with open_service(profile.model_copy(update={"languages": sections})) as service:
            yield service


async def images(service: Service) -> Images:
    found = (await service.backend.chosen()).images
    assert found is not None
    return found


async def test_files_and_libraries_are_in_new_sessions_and_nothing_else_is(
    engine: str, folder: Path, client: docker.DockerClient, before: set[str]
) -> None:
    with local_index() as served:
        served.pages.update(Wheels.small().pages)
        async with serving(engine, folder, index=f"{served.url}/") as service:
            first = await execute(service, FILL, libraries=["tinyanswer"])
            assert first.status == "ok", first
            assert await service.sessions.commit(first.session_id, NAME) == f"{NAME}:latest"
            # The session goes on as it was.
            again = await execute(service, "import tinyanswer\nx + 1", session_id=first.session_id)
            assert (again.result, again.session_state) == ("42", "kept")
            # Files that are written later are not in the template.
            await execute(service, "open('data/a.txt', 'w').write('two')", session_id=first.session_id)
            (template,) = await (await images(service)).templates()
            assert template.image == f"{NAME}:latest" and template.size > 0
    async with serving(engine, folder, NAME) as service:
        found = await execute(service, FOUND)
        assert (found.status, found.result) == ("ok", EXPECTED), found
        used = await execute(service, "import tinyanswer\ntinyanswer.__file__", session_id=found.session_id)
        assert used.result == "'/home/libraries/python/tinyanswer.py'", used
        # Sessions share the image and nothing more.
        assert (await execute(service, "import os\nos.path.exists('data/new')")).result == "False"
        with pytest.raises(StartFailed, match=f"removing image {NAME}:latest failed on {engine}"):
            await (await images(service)).remove(NAME)
    async with serving(engine, folder) as service:
        await (await images(service)).remove(NAME)
        assert await (await images(service)).templates() == []
    assert client.images.list(filters={"label": LABEL}) == []


async def test_a_second_commit_replaces_the_first_and_contains_its_files_only_once(
    engine: str, folder: Path, client: docker.DockerClient, before: set[str]
) -> None:
    async with serving(engine, folder) as service:
        ballast = "import os\nopen('kept', 'w').write('1')\nopen('ballast', 'wb').write(os.urandom(4 << 20))"
        first = await execute(service, ballast)
        for _ in range(2):
            await execute(service, "open('mark', 'a').write('x')", session_id=first.session_id)
            await service.sessions.commit(first.session_id, NAME)
            assert len(client.images.list(filters={"label": LABEL})) == 1
        (once,) = await (await images(service)).templates()
    async with serving(engine, folder, NAME) as service:
        second = await execute(service, "open('more', 'w').write('2')")
        await service.sessions.commit(second.session_id, NAME)
        (twice,) = await (await images(service)).templates()
        assert abs(twice.size - once.size) < MIB
        third = await execute(service, "import os\nsorted(os.listdir()), open('mark').read()")
        assert third.result == "(['ballast', 'kept', 'mark', 'more'], 'xx')"
        # A sandbox of the first template ran when that was replaced; the template is removed once nothing uses it.
        assert len(client.images.list(filters={"label": LABEL})) == 2
        for session in service.sessions.list():
            await service.sessions.close(session.id)
        await service.pool_until(lambda pool: pool.leased == pool.closing == 0)
        await (await images(service)).remove(NAME)
        assert client.images.list(filters={"label": LABEL}) == []


async def test_there_are_no_more_templates_than_the_profile_allows(
    engine: str, folder: Path, client: docker.DockerClient, before: set[str]
) -> None:
    async with serving(engine, folder, templates=1) as service:
        session = (await execute(service, "1")).session_id
        refused: list[str] = []

        async def commit(name: str) -> None:
            try:
                await service.sessions.commit((await execute(service, "1")).session_id, name)
            except CapacityReached as error:
                refused.append(str(error))

        # Of two commits at once only one gets the last free place.
        async with anyio.create_task_group() as group:
            group.start_soon(commit, NAME)
            group.start_soon(commit, f"{NAME}-other")
        (kept,) = await (await images(service)).templates()
        (said,) = refused
        assert said.startswith("there is no room for another template (containers.templates = 1); "), said
        # An existing template can be replaced, and removing one makes room.
        await service.sessions.commit(session, kept.image)
        await (await images(service)).remove(kept.image)
        await service.sessions.commit(session, f"{NAME}-third")
        assert [template.image for template in await (await images(service)).templates()] == [f"{NAME}-third:latest"]


async def test_nothing_is_committed_without_a_request(
    engine: str, folder: Path, client: docker.DockerClient, before: set[str]
) -> None:
    async with serving(engine, folder) as service:
        first = await execute(service, "open('a', 'w').write('a')")
        await service.sessions.reset(first.session_id)
        await execute(service, "open('b', 'w').write('b')", session_id=first.session_id)
        await service.sessions.close(first.session_id)
        assert (await execute(service, "import os\nos.listdir()")).result == "[]"
    assert {str(image.id) for image in client.images.list(all=True)} == before


@pytest.mark.parametrize(
    "name", ["", "Geo", "geo:", "-geo", "geo/", "/geo", "geo@sha256:" + 64 * "0", "geo geo", "geo\n", "a" * 256]
)
def test_a_name_that_no_image_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"image name .* is not valid; use lower-case") as refused:
        checked(name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["geo", "127.0.0.1:5000/a/geo", "my-registry.example/geo_1.2"])
def test_a_name_without_a_tag_means_latest(name: str) -> None:
    assert (checked(name), checked(f"{name}:V1.0")) == (f"{name}:latest", f"{name}:V1.0")


async def test_an_image_that_does_not_come_from_a_session_is_not_replaced_or_removed(
    engine: str, folder: Path, client: docker.DockerClient, before: set[str]
) -> None:
    other, inherits = f"{NAME}-other", f"{NAME}-inherits"
    client.images.get(BASE).tag(other)
    async with serving(engine, folder) as service:
        session = (await execute(service, "1")).session_id
        with pytest.raises(
            InvalidArgument, match=f"image {other}:latest already exists and is not a template; choose another"
        ):
            await service.sessions.commit(session, other)
        for name, why in (
            (other, "it was not made from a session"),
            ("no-such-image", "there is no image with that name"),
        ):
            with pytest.raises(InvalidArgument, match=f"image '{name}:latest' is not a template: {why}; "):
                await (await images(service)).remove(name)
        # An image that is built from a template inherits its labels.
        await service.sessions.commit(session, NAME)
        client.images.build(fileobj=io.BytesIO(f"FROM {NAME}\nENV A=b\n".encode()), tag=inherits, rm=True)
        assert [template.image for template in await (await images(service)).templates()] == [f"{NAME}:latest"]
        with pytest.raises(InvalidArgument, match="it was not made from a session"):
            await (await images(service)).remove(inherits)
    assert client.images.get(other).id == client.images.get(BASE).id
    for name in (inherits, other):
        client.images.remove(name)


async def test_a_session_without_a_sandbox_is_not_committed(engine: str, folder: Path, before: set[str]) -> None:
    async with serving(engine, folder) as service:
        with pytest.raises(UnknownSession):
            await service.sessions.commit("no-such-session", NAME)
        session = open_session(service)
        with pytest.raises(InvalidArgument, match="has no sandbox that could be committed; run code in it first"):
            await service.sessions.commit(session, NAME)
        await execute(service, "open('a', 'w').write('a')", session_id=session)
        await service.sessions.reset(session)
        with pytest.raises(InvalidArgument, match="has no sandbox that could be committed"):
            await service.sessions.commit(session, NAME)
        assert await (await images(service)).templates() == []


async def test_a_template_that_does_not_fit_is_named_with_the_fix(
    engine: str, folder: Path, client: docker.DockerClient, before: set[str]
) -> None:
    async with serving(engine, folder) as service:
        large = await execute(service, "open('large', 'wb').write(b'x' * (20 << 20))")
        await service.sessions.commit(large.session_id, NAME)
    small = small_profile(engine, folder, containers={"images": {"python": NAME}})
    with anyio.fail_after(60):
        async with open_service(small) as service:
            with pytest.raises(
                StartFailed, match=f"template {NAME}.* cannot be unpacked .* {engine}: .*; raise limits.disk"
            ):
                await execute(service, "1")
            while client.api.containers(all=True, filters={"label": SERVER, "ancestor": NAME}):
                await anyio.sleep(0.05)


@pytest.fixture
def forged(folder: Path, client: docker.DockerClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """An image with an archive that does not come from a session; the parameter is the name of a file in it."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        for name in ("sandbox", "home", "opt", "opt/handlers"):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            packed.addfile(member)
        for name in ("sandbox/a", "opt/handlers/python/importlib_bootstrap/runner.py", "/tmp/b", request.param):
            member = tarfile.TarInfo(name)
            member.size = 4
            packed.addfile(member, io.BytesIO(b"evil"))
    (folder / "forged").mkdir()
    (folder / "forged/Dockerfile").write_text(f"FROM {BASE}\nCOPY template.tar /opt/template.tar\n")
    (folder / "forged/template.tar").write_bytes(archive.getvalue())
    client.images.build(path=str(folder / "forged"), tag=f"{NAME}-forged", rm=True)
    yield f"{NAME}-forged"
    client.images.remove(f"{NAME}-forged", force=True)


@pytest.mark.parametrize("forged", ["tmp/c"], indirect=True)
async def test_an_archive_with_other_paths_reaches_only_the_two_folders(engine: str, folder: Path, forged: str) -> None:
    async with serving(engine, folder, forged) as service:
        found = await execute(service, "import os\nos.listdir(), os.listdir('/tmp')")
        assert found.result == "(['a'], [])"


@pytest.mark.parametrize("forged", ["sandbox/../tmp/c"], indirect=True)
async def test_an_archive_with_a_path_out_of_the_two_folders_starts_nothing(
    engine: str, folder: Path, forged: str
) -> None:
    async with serving(engine, folder, forged) as service:
        with pytest.raises(StartFailed, match="cannot be unpacked"):
            await execute(service, "1")


async def test_a_backend_without_images_refuses(folder: Path) -> None:
    await need("embedded")
    with anyio.fail_after(60):
        async with open_service(small_profile("embedded", folder)) as service:
            session = (await execute(service, "1")).session_id
            with pytest.raises(InvalidArgument, match="the backend embedded has no images; name docker or podman in"):
                await service.sessions.commit(session, NAME)
