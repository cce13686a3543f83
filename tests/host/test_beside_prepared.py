"""Libraries that a session installs beside the prepared ones: what is shared, replaced, refused; and the restart then."""

from collections.abc import AsyncIterator, Iterator, Sequence

import anyio
import pytest

from llm_sandbox_mcp.base.errors import InstallFailed
from llm_sandbox_mcp.base.messages import Step
from llm_sandbox_mcp.base.results import Installation
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install, open_session
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, host_folder, need
from tests.local_index import LocalIndex, local_index, wheel

pytestmark = pytest.mark.anyio

VERSIONS = "from importlib.metadata import version\nimport base, user\nversion('base'), version('user')"
BIG = "nvidia-big"


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as served:
        yield served


@pytest.fixture
def preload() -> Sequence[str]:
    """The modules that warm interpreters import."""
    return ()


@pytest.fixture
async def service(index: LocalIndex, preload: Sequence[str]) -> AsyncIterator[Service]:
    """A service whose Python has `base` 2.0, and `user` 2.0, which needs that."""
    await need("embedded")
    bases = {file: content for version in ("0.5", "1.0", "2.0") for file, content in wheel("base", version).items()}
    users = {**wheel("user", "1.0", "base>=1,<2"), **wheel("user", "2.0", "base>=2")}
    index.add_project("base", bases, index)
    index.add_project("user", users, index)
    index.add_project("other", wheel("other"), index)
    index.add_project("more", wheel("more", "1.0", "base", "other"), index)
    (big,) = built = wheel(BIG.replace("-", "_"))
    index.add_project(BIG, built, index, sizes={big: 100 * MIB})
    with host_folder() as folder, anyio.fail_after(100):
        server = {"cache": str(folder / "cache"), "runtime": str(folder / "runtime")}
        languages = {"python": {"libraries": ["user"], "index": f"{index.url}/simple", "preload": preload}}
        profile = load_profile(over={"server": server, "languages": languages, "limits": {"disk": "64MiB"}})
        environ = {"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(folder / "uv")}
        async with open_service(profile, environ=environ) as service:
            prepared = await execute(service, VERSIONS, keep_session=False)
            assert prepared.result == "('2.0', '2.0')", prepared
            index.requests.clear()
            yield service


def downloads(index: LocalIndex) -> set[str]:
    """The names and versions of the wheels that were downloaded."""
    return {"-".join(path.split("/")[-1].split("-")[:2]) for path, _ in index.requests if path.endswith(".whl")}


def versions(done: Installation) -> dict[str, str]:
    return {library.name: library.version for library in done.libraries}


async def test_what_is_prepared_is_not_downloaded_again(service: Service, index: LocalIndex) -> None:
    session = open_session(service)
    assert versions(await install(service, ["user", "base>=1"], session_id=session)) == {}
    assert index.requests == []
    done = await install(service, ["more"], session_id=session)
    assert (versions(done), done.notes) == ({"more": "1.0", "other": "1.0"}, ())
    assert downloads(index) == {"more-1.0", "other-1.0"}
    assert (await execute(service, "import more, base\nmore.ANSWER", session_id=session)).result == "42"


async def test_what_code_or_a_stopped_installation_left_does_no_harm(service: Service) -> None:
    places = "import os; os.mkdir('/home/.beside')\nfor place in ('libraries/python/x-1.dist-info', '.beside/1'):"
    session = open_session(service)
    done = await install(service, ["other"], session_id=session)
    await execute(service, f"{places}\n    open(f'/home/{{place}}', 'w')", session_id=session)
    done = await install(service, ["more"], session_id=session)
    assert versions(done) == {"more": "1.0", "other": "1.0"}
    left = await execute(service, "import os\nos.path.lexists('/home/.beside')", session_id=session)
    assert left.result == "False"


async def test_what_does_not_fit_a_replaced_library_is_replaced_too_and_back_again(
    service: Service, index: LocalIndex
) -> None:
    session = open_session(service)
    done = await install(service, ["base==1.0"], session_id=session)
    assert versions(done) == {"base": "1.0", "user": "1.0"}
    (note,) = done.notes
    assert note == "base 2.0 is now 1.0, user 2.0 is now 1.0 in this session"
    assert (await execute(service, VERSIONS, session_id=session)).result == "('1.0', '1.0')"
    index.requests.clear()
    back = await install(service, ["user==2.0"], session_id=session)
    assert (versions(back), downloads(index)) == ({}, set())
    (note,) = back.notes
    assert note.cause.startswith("base 1.0 is now 2.0, user 1.0 is now 2.0 in this session, but code in python ")
    await service.sessions.restart(session)
    assert (await execute(service, VERSIONS, session_id=session)).result == "('2.0', '2.0')"


async def test_a_version_that_nothing_prepared_fits_is_refused_with_both_versions(service: Service) -> None:
    session = open_session(service)
    with pytest.raises(InstallFailed) as refused:
        await install(service, ["base==0.5"], session_id=session)
    assert "it would replace base 2.0 with 0.5, and user would not fit; ask for another version" in str(refused.value)
    assert (await execute(service, VERSIONS, session_id=session)).result == "('2.0', '2.0')"


async def test_an_interpreter_that_has_the_old_version_gets_the_new_one_by_a_restart(service: Service) -> None:
    ran = await execute(service, "import base\nx = open('kept', 'w').write('1')")
    session = ran.session_id
    where = "import base, os\nbase.__file__.startswith('/home/'), os.path.exists('kept'), 'x' in globals()"
    run = await execute(service, where, session_id=session, libraries=["base==1.0"])
    assert run.result == "(False, True, True)"
    (note,) = run.notes
    assert (note.code, note.step) == ("libraries_replaced", Step.RESTART)
    await service.sessions.restart(session)
    again = await execute(service, where, session_id=session)
    assert (again.result, again.notes) == ("(True, True, False)", ())


@pytest.mark.parametrize("preload", [("base",)])
async def test_a_fresh_session_gets_another_version_of_what_its_interpreter_had_imported(
    service: Service, preload: Sequence[str]
) -> None:
    await service.warm(["python"])
    for libraries, version in ((["base==1.0"], "1.0"), ([], "2.0")):
        await service.pool_until(lambda now: now.warm == 1 and not now.warming and bool(now.keys[0].preload))
        state = "import sys\nloaded = 'base' in sys.modules\nfrom importlib.metadata import version"
        run = await execute(service, f"{state}\nloaded, version('base')", libraries=libraries)
        assert run.result == f"({not libraries}, '{version}')"
        assert all("goes on" not in note for note in run.notes)
    assert service.pool().hits == 2


async def test_what_cannot_fit_is_refused_before_it_is_downloaded_with_the_limit_and_what_to_do(
    service: Service, index: LocalIndex
) -> None:
    with pytest.raises(InstallFailed) as refused:
        await install(service, [BIG])
    message = str(refused.value)
    assert "the disk limit of 64MiB was reached (limits.disk in the profile); " in message
    assert ": 100 MiB would be downloaded, and 6" in message
    assert "wheels for CPUs in an index of its own, which the operator can set (languages.python.index" in message
    assert message.endswith("; install fewer or smaller ones, or raise limits.disk in the profile")
    assert downloads(index) == set()
