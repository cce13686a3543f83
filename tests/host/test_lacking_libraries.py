"""Where the libraries of the profile cannot be prepared, Python runs without them, says so, and tries again."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import PolicyDenied
from llm_sandbox_mcp.libraries.prepared import preparing
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install
from llm_sandbox_mcp.wiring import open_service
from tests.cli.command import ran
from tests.engines import host_folder, need
from tests.local_index import LocalIndex, local_index, wheel

pytestmark = pytest.mark.anyio

IMPORT = "import tiny\ntiny.__name__"


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as serving:
        yield serving


@pytest.fixture
def folder() -> Iterator[Path]:
    with host_folder() as folder:
        yield folder


@asynccontextmanager
async def serving(index: LocalIndex, folder: Path, *, offline: bool = False) -> AsyncIterator[Service]:
    """A service whose profile has one library, with its own cache."""
    await need("embedded")
    server = {"cache": str(folder / "cache"), "runtime": str(folder / "runtime"), "offline": offline}
    languages = {"python": {"libraries": ["tiny"], "index": f"{index.url}/simple"}}
    profile = load_profile(over={"server": server, "languages": languages})
    environ = {"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(folder / "uv")}
    with anyio.fail_after(100):
        async with open_service(profile, environ=environ) as service:
            yield service


async def codes(service: Service, code: str, language: str = "python") -> tuple[str | None, list[str]]:
    """The result of a run in a session of its own, and the codes of its notes."""
    run = await execute(service, code, language=language, keep_session=False)
    return run.result if run.status == "ok" else run.status, [note.code for note in run.notes]


async def test_python_runs_without_them_and_a_note_says_so(index: LocalIndex, folder: Path) -> None:
    async with serving(index, folder) as service:
        assert await codes(service, "6 * 7") == ("42", ["no_libraries"])
        run = await execute(service, IMPORT)
        assert run.status == "error"
        (note,) = [note for note in run.notes if note.code == "no_libraries"]
        assert note.endswith("finds the reason with `llm-sandbox-mcp doctor`")
        assert "tiny was not found" in str(note.facts["reason"])
        assert (await codes(service, "echo 1", "bash"))[1] == []


async def test_they_are_there_once_the_index_has_them(
    index: LocalIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_RETRY", 0.0)
    async with serving(index, folder) as service:
        assert (await codes(service, "1"))[1] == ["no_libraries"]
        assert (await codes(service, "python -c 'import tiny'", "bash"))[0] == "error"
        index.add_project("tiny", wheel("tiny"), index)
        while (await codes(service, "1"))[1]:
            pass
        assert await codes(service, IMPORT) == ("'tiny'", [])
        assert (await codes(service, "python -c 'import tiny'", "bash"))[0] != "error"


async def test_an_offline_server_asks_nobody_and_uses_what_is_prepared(index: LocalIndex, folder: Path) -> None:
    async with serving(index, folder, offline=True) as service:
        assert await codes(service, "1") == ("1", ["no_libraries"])
        with pytest.raises(PolicyDenied, match=r"this server works offline \(server.offline\)"):
            await install(service, ["tiny"])
    assert not index.requests
    index.add_project("tiny", wheel("tiny"), index)
    async with serving(index, folder) as service:
        assert await service.prepare("python", quiet) == ""
    asked = len(index.requests)
    async with serving(index, folder, offline=True) as service:
        assert await codes(service, IMPORT) == ("'tiny'", [])
    assert len(index.requests) == asked


async def quiet(line: str) -> None:
    pass


@pytest.mark.usefixtures("embedded")
def test_prepare_and_doctor_say_what_is_lacking_and_prepare_fixes_it(index: LocalIndex, folder: Path) -> None:
    profile = folder / "own.toml"
    profile.write_text(
        f'[server]\ncache = "{folder}/cache"\nruntime = "{folder}/runtime"\n'
        f'[languages.python]\nlibraries = ["tiny"]\nindex = "{index.url}/simple"\n'
    )
    named = ("--profile", str(profile))
    done = ran("prepare", "py", *named, UV_CACHE_DIR=str(folder / "uv"))
    assert done.returncode == 1, done
    assert done.stdout.splitlines()[-1].startswith("python    without its libraries  ")
    assert "tiny was not found" in done.stderr
    assert "tiny will be prepared at the first use" in ran("doctor", *named).stdout
    index.add_project("tiny", wheel("tiny"), index)
    done = ran("prepare", "bash", "python", *named, UV_CACHE_DIR=str(folder / "uv"))
    assert (done.returncode, [line.split()[:2] for line in done.stdout.splitlines()[2:]]) == (
        0,
        [["bash", "ready"], ["python", "ready"]],
    )
    done = ran("run", "--offline", "-c", IMPORT, *named)
    assert (done.returncode, done.stdout) == (0, "'tiny'\n")


@pytest.mark.usefixtures("embedded")
def test_doctor_says_that_the_index_cannot_be_reached(folder: Path) -> None:
    with local_index() as gone:
        pass
    profile = folder / "own.toml"
    profile.write_text(
        f'[server]\ncache = "{folder}/cache"\nruntime = "{folder}/runtime"\n'
        f'[languages.python]\nlibraries = ["tiny"]\nindex = "{gone.url}/simple"\n'
    )
    done = ran("doctor", "--profile", str(profile))
    assert done.returncode == 0
    assert (
        "tiny cannot be prepared, and code runs without them: the package index 127.0.0.1 cannot be reached: "
        "Connection refused" in done.stdout
    )
    assert "\n  python: name an index that this machine reaches in languages.python.index of the profile" in done.stdout
