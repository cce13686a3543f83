"""Libraries of each language with a package manager: which session has them, how often they are fetched, failures."""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import InstallFailed
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, open_session
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, host_folder, need, need_image, small_profile
from tests.local_index import LocalIndex, local_index

from .indexes import INDEXES, pages
from .serving import LANGUAGES, missing
from .test_selftests import Run, cases

pytestmark = [pytest.mark.anyio, pytest.mark.only_in_all(but={"language": "python"})]

_LIMITS = {"memory": 1024 * MIB, "cpus": 2.0, "pids": 256, "disk": 256 * MIB}
_BOUND = 120.0
_FILES = {
    "python": "/tinyanswer-",
    "javascript": ".tgz",
    "ruby": "/gems/tiny-answer-",
    "r": "/tinyanswer_",
    "java": "/greeting-1.0.jar",
    "go": "/v1.1.0.zip",
    "cpp": "/libgreeting-dev_",
}
"""A part of the address of the library's own file."""
_ABSENT = {
    "python": {
        "nosuchthing": "nosuchthing was not found",
        "tinyanswer==99": "there is no version of tinyanswer==99",
    },
    "javascript": {"nosuchthing": "/nosuchthing", "tiny-answer@99": "tiny-answer@99"},
    "ruby": {
        "nosuchthing": "Could not find a valid gem 'nosuchthing'",
        "tiny-answer:99": "'tiny-answer' (= 99)",
    },
    "r": {
        "nosuchthing": "no such package in the index for this version of R: nosuchthing",
        "tinyanswer==99": "tinyanswer is 1.0",
    },
    "java": {
        "org.example:nosuchthing:1": "does not have org.example:nosuchthing:1",
        "org.example:greeting:99": "does not have org.example:greeting:99; the newest version is 1.0",
        "org.exmaple:greeting:1.0": "does not have org.exmaple:greeting:1.0",
        "org.example:broken:1.0": "does not have org.example:absent:3.1",
    },
    "go": {
        "example.com/nosuchthing": "example.com/nosuchthing",
        "example.com/greeting@v99.0.0": "example.com/greeting@v99.0.0",
    },
    "cpp": {
        "libnosuchthing-dev": "there is no package libnosuchthing-dev",
        "libgreeting-dev=99": "libgreeting-dev is available only in version 1.0-1",
        "libbroken-dev": "libbroken-dev needs libabsent-dev",
    },
}
"""Libraries that are not in the index or have a dependency that is not, and parts of the package managers' messages."""


def with_a_library(language: str) -> Run:
    """The run of the language's selftest that uses a library."""
    return next(run for case in cases(LANGUAGES[language]) for run in case.run if run.libraries)


@pytest.fixture(params=INDEXES)
def language(request: pytest.FixtureRequest) -> str:
    """Each language with a package manager."""
    return str(request.param)


def need_programs(language: str) -> None:
    if programs := missing(LANGUAGES[language], libraries=True):
        pytest.skip(f"{language} needs {', '.join(programs)}")


@asynccontextmanager
async def serving(backend_name: str, language: str, address: str, folder: Path | None = None) -> AsyncIterator[Service]:
    """A service with its cache in the folder; without a folder, the cache is removed with the service."""
    await need(backend_name)
    need_image(backend_name, language)
    need_programs(language)
    with ExitStack() as stack, anyio.fail_after(_BOUND):
        profile = small_profile(backend_name, folder or stack.enter_context(host_folder()), limits=_LIMITS)
        sections: Mapping[str, LanguageSection] = {language: LanguageSection(index=address)}
        async with open_service(profile.model_copy(update={"languages": sections})) as service:
            yield service


@pytest.fixture
async def index(language: str) -> AsyncIterator[LocalIndex]:
    need_programs(language)
    with local_index() as served:
        served.pages.update(pages(language))
        yield served


@pytest.fixture
async def service(backend_name: str, language: str, index: LocalIndex) -> AsyncIterator[Service]:
    async with serving(backend_name, language, f"{index.url}/") as opened:
        yield opened


async def test_a_library_is_only_in_its_own_session_and_is_not_downloaded_again(
    service: Service, index: LocalIndex, language: str
) -> None:
    run = with_a_library(language)

    def downloads() -> int:
        return sum(_FILES[language] in path for path, _ in index.requests)

    mine = await execute(service, run.code, language=language, libraries=run.libraries)
    assert mine.status == "ok", mine
    once = downloads()
    assert once >= 1, index.requests
    for libraries in ((), run.libraries, run.libraries):
        again = await execute(service, run.code, language=language, session_id=mine.session_id, libraries=libraries)
        assert (again.status, again.stdout.text, again.result) == ("ok", mine.stdout.text, mine.result)
    assert downloads() == once
    other = await execute(service, run.code, language=language)
    assert other.status == "error", other


async def test_a_library_that_is_there_needs_no_index(service: Service, index: LocalIndex, language: str) -> None:
    run = with_a_library(language)
    first = await execute(service, run.code, language=language, libraries=run.libraries)
    assert first.status == "ok", first
    index.pages.clear()
    again = await execute(service, run.code, language=language, session_id=first.session_id, libraries=run.libraries)
    assert again.status == "ok", again


async def test_a_file_is_downloaded_once_for_all_sessions_and_servers(backend_name: str, language: str) -> None:
    run = with_a_library(language)
    need_programs(language)
    # Files of an index on 127.0.0.1, the machine itself, are not kept, so the index has another loopback address.
    with local_index("127.0.0.2") as index, host_folder() as folder:
        index.pages.update(pages(language))
        for number in (1, 2):
            async with serving(backend_name, language, f"{index.url}/", folder) as service:
                for _ in range(number):
                    done = await execute(
                        service, run.code, language=language, libraries=run.libraries, keep_session=False
                    )
                    assert done.status == "ok", done
        downloads = [path for path, _ in index.requests if _FILES[language] in path]
    assert downloads
    assert sorted(set(downloads)) == sorted(downloads)


async def test_a_library_that_is_not_in_the_index_is_named_and_the_code_is_not_run(
    service: Service, language: str
) -> None:
    session = open_session(service)
    for library, message in _ABSENT[language].items():
        with pytest.raises(InstallFailed) as failure:
            await execute(service, "never run", language=language, session_id=session, libraries=[library])
        assert f" could not install {library}: " in str(failure.value)
        assert message in str(failure.value).partition(": ")[2]
    assert service.sessions.list()[0].runs == 0


async def test_an_index_that_is_down_is_named_and_the_code_is_not_run(backend_name: str, language: str) -> None:
    with local_index() as index:
        down = index.url
    async with serving(backend_name, language, f"{down}/") as service:
        session = open_session(service)
        with pytest.raises(InstallFailed, match=r"127\.0\.0\.1 cannot be reached"):
            await execute(
                service,
                "never run",
                language=language,
                session_id=session,
                libraries=with_a_library(language).libraries,
            )
        assert service.sessions.list()[0].runs == 0
