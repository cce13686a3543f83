"""Installations with `allow` and `deny` lists in a profile, in real sandboxes: what was installed is checked too."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from llm_sandbox_mcp.base.errors import InstallFailed, PolicyDenied
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install, open_session
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, host_folder, need, small_profile
from tests.local_index import LocalIndex, Page, local_index, wheel

from .indexes import Wheels

pytestmark = pytest.mark.anyio

_LIMITS = {"memory": 512 * MIB, "cpus": 2.0, "pids": 256, "disk": 128 * MIB}


@asynccontextmanager
async def serving(
    language: str,
    index: LocalIndex,
    *,
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    opened: tuple[str, ...] = (),
) -> AsyncIterator[Service]:
    await need("embedded")
    with host_folder() as folder, anyio.fail_after(120):
        section = LanguageSection(index=f"{index.url}/", allow=allow, deny=deny, opened=opened)
        profile = small_profile("embedded", folder, limits=_LIMITS)
        async with open_service(profile.model_copy(update={"languages": {language: section}})) as service:
            yield service


@pytest.fixture
def wheels() -> Iterator[LocalIndex]:
    """An index that has only `tinyanswer`."""
    with local_index() as served:
        for path, content in Wheels.small().pages.items():
            served.pages[path] = content if isinstance(content, Page) else Page(content)
        yield served


async def test_only_libraries_in_the_allow_list_are_installed(wheels: LocalIndex) -> None:
    async with serving("python", wheels, allow=("Tiny_Answer", "tinyanswer")) as service:
        ran = await execute(service, "import tinyanswer", libraries=["TinyAnswer"])
        assert ran.status == "ok", ran
        with pytest.raises(PolicyDenied, match="not among those"):
            await install(service, ["humanize"], session_id=ran.session_id)


async def test_the_sandbox_is_removed_when_a_version_that_is_not_allowed_was_installed(wheels: LocalIndex) -> None:
    async with serving("python", wheels, allow=("tinyanswer>=9",)) as service:
        session = (await execute(service, "x = 1")).session_id
        with pytest.raises(InstallFailed, match="was installed, but the profile allows tinyanswer>=9"):
            await install(service, ["tinyanswer"], session_id=session)
        ran = await execute(service, "import tinyanswer", session_id=session)
        assert "ModuleNotFoundError" in ran.stderr.text
        assert any("started fresh" in note for note in ran.notes)


async def test_a_denied_version_that_was_installed_is_named_and_removed(wheels: LocalIndex) -> None:
    async with serving("python", wheels, deny=("tinyanswer<9",)) as service:
        session = (await execute(service, "x = 1")).session_id
        with pytest.raises(InstallFailed, match="which the profile denies"):
            await execute(service, "1", libraries=["tinyanswer"], session_id=session)
        assert "ModuleNotFoundError" in (await execute(service, "import tinyanswer", session_id=session)).stderr.text


async def test_a_file_that_the_profile_opens_is_installed(wheels: LocalIndex) -> None:
    name, content = next(iter(wheel("tinyanswer").items()))
    async with serving("python", wheels, opened=(f"./{name}",), allow=("nothing",)) as service:
        session = open_session(service)
        await service.files.copy_in(session, name, content)
        ran = await execute(service, "import tinyanswer", libraries=[f"./{name}"], session_id=session)
        assert ran.status == "ok", ran


async def test_a_dependency_is_denied_too() -> None:
    with local_index() as served:
        served.add_npm("tiny-answer", served)
        served.add_npm("harmless", served, "tiny-answer")
        async with serving("javascript", served, deny=("tiny-answer 1.*",)) as service:
            with pytest.raises(InstallFailed, match=r"'tiny-answer' '1\.0\.0' was installed, which the profile denies"):
                await install(service, ["harmless"], language="javascript")
        async with serving("javascript", served, allow=("harmless",)) as service:
            installed = await install(service, ["harmless"], language="javascript")
            assert "harmless" in {library.name for library in installed.libraries}
