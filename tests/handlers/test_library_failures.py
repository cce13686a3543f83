"""Messages when a library cannot be installed: they name the library and show the package manager's last lines."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends import BACKENDS
from llm_sandbox_mcp.base.errors import InstallFailed, InvalidArgument
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, need, need_image, small_profile

from .serving import LANGUAGES, missing, service_with_indexes

pytestmark = pytest.mark.only_in_all(but={"language": "python"})

LIMIT = 120.0
MANAGER = """
[libraries]
manager = "filler"
name_pattern = 'thing'
installed = ["true"]
installed_pattern = '(?P<name>)(?P<version>)'
index = "http://127.0.0.1:9"
"""
"""A package manager that does not use an index; its `install` command is added below."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def service(anyio_backend: str, backend_name: str) -> AsyncIterator[Service]:
    await need(backend_name)
    async with service_with_indexes(backend_name) as opened:
        yield opened


def _need(backend_name: str, language: str) -> None:
    need_image(backend_name, language)
    if programs := missing(LANGUAGES[language], libraries=True):
        pytest.skip(f"{language} needs {', '.join(programs)}")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("language", "library", "message"),
    [
        ("r", "nosuchthing", "no such package in the index for this version of R: nosuchthing"),
        ("r", "tinyanswer==2.0", "tinyanswer is 1.0"),
        ("r", "tinybroken", "could not be installed: tinybroken"),
        ("r", "tinybroken", "unable to collate and parse R files|Error in eval|broken"),
        ("ruby", "nosuchthing", "Could not find a valid gem 'nosuchthing'"),
        ("ruby", "tiny-answer:9.0", r"Could not find a valid gem 'tiny-answer' \(= 9.0\)"),
    ],
)
async def test_a_library_that_cannot_be_installed_is_named(
    service: Service, backend_name: str, language: str, library: str, message: str
) -> None:
    _need(backend_name, language)
    with anyio.fail_after(LIMIT), pytest.raises(InstallFailed, match=message):
        await install(service, [library], language=language)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("language", "library"),
    [
        ("r", "../tinyanswer"),
        ("r", "--no-test-load"),
        ("r", "github::owner/name"),
        ("r", "tinyanswer@1.0"),
        ("ruby", "tiny-answer.gem"),
        ("ruby", "--source"),
        ("ruby", "./tiny-answer"),
        ("ruby", "http://localhost/tiny-answer"),
    ],
)
async def test_anything_but_a_plain_name_is_refused(service: Service, language: str, library: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a plain name"):
        await install(service, [library], language=language)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("language", "libraries"),
    [("r", {"tinyanswer": "1.0", "tinyquestion": "1.0"}), ("ruby", {"tiny-answer": "1.0.0"})],
)
async def test_an_installed_library_is_listed_with_its_dependencies(
    service: Service, backend_name: str, language: str, libraries: dict[str, str]
) -> None:
    _need(backend_name, language)
    with anyio.fail_after(LIMIT):
        done = await install(service, [next(iter(libraries))], language=language)
        await service.sessions.close(done.session_id)
    assert {library.name: library.version for library in done.libraries} == libraries


@pytest.mark.anyio
async def test_an_installation_does_not_hide_that_state_was_lost_before_it(service: Service, backend_name: str) -> None:
    _need(backend_name, "javascript")
    with anyio.fail_after(LIMIT):
        lost = await execute(service, "trap '' INT; while :; do :; done", language="bash", timeout=0.5)
        assert lost.session_state == "fresh", lost
        await install(service, ["tiny-answer"], language="javascript", session_id=lost.session_id)
        ran = await execute(service, "true", language="bash", session_id=lost.session_id, keep_session=False)
    assert any("started fresh" in note for note in ran.notes), ran


@pytest.mark.only_in_all
@pytest.mark.anyio
@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize(
    ("command", "reached"),
    [
        ("yes >full", "disk limit of 16MiB was reached (limits.disk"),
        ("for n in $(seq 2000); do true >$n; done; false", "limit of 1000 files and folders was reached (limits.files"),
        ("yes | tr -d '\\n' | sort", "memory limit of 128MiB was reached (limits.memory"),
        (
            "for n in $(seq 99); do sleep 60 >&- 2>&- & done",
            "limit of 64 processes and threads was reached, so starting more was refused (limits.pids",
        ),
    ],
)
async def test_a_limit_that_an_installation_reached_is_named(command: str, reached: str) -> None:
    with host_folder() as folder, anyio.fail_after(LIMIT):
        shutil.copytree(LANGUAGES["bash"].folder, folder / "mine/bash")
        with (folder / "mine/bash/handler.toml").open("a") as definition:
            definition.write(f"{MANAGER}install = {json.dumps(['sh', '-c', command])}\n")
        profile = small_profile(
            "embedded", folder, handlers={"folders": (str(folder / "mine"),)}, limits={"files": 1000}
        )
        async with open_service(profile) as service:
            with pytest.raises(InstallFailed) as failure:
                await install(service, ["thing"], language="bash")
    assert str(failure.value).startswith(f"filler could not install thing: the {reached} in the profile); ")


@pytest.mark.anyio
@pytest.mark.parametrize("backend_name", [name for name in BACKENDS if name != "embedded"], indirect=True)
async def test_an_image_without_the_package_manager_is_named_with_the_fix(service: Service, backend_name: str) -> None:
    need_image(backend_name, "python")
    session = (await execute(service, "1")).session_id
    with pytest.raises(InstallFailed) as failure:
        await install(service, ["tiny-answer"], language="ruby", session_id=session)
    await service.sessions.close(session)
    assert str(failure.value) == (
        f"libraries of ruby cannot be installed without gem, which image llm-sandbox-mcp-python on {backend_name} does "
        "not have; "
        "add it to the image, or build one that has it: llm-sandbox-mcp images build"
    )


@pytest.mark.anyio
@pytest.mark.usefixtures("embedded")
async def test_a_package_manager_that_the_machine_does_not_have_is_named(tmp_path: Path) -> None:
    shutil.copytree(LANGUAGES["cpp"].folder, tmp_path / "handlers/cpp")
    definition = tmp_path / "handlers/cpp/handler.toml"
    definition.write_text(definition.read_text().replace('"dpkg-deb"', '"no-dpkg-deb"'))
    with host_folder() as folder:
        profile = small_profile("embedded", folder, handlers={"folders": (str(tmp_path / "handlers"),)})
        async with open_service(profile) as service:
            with pytest.raises(InstallFailed) as failure:
                await install(service, ["libgreeting-dev"], language="cpp")
    assert str(failure.value) == (
        "libraries of cpp cannot be installed without no-dpkg-deb, which /usr of this machine does not have; "
        "install no-dpkg-deb there"
    )
