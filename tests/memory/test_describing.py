"""What is said of a language, and when a sandbox is made to find it out."""

from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Check
from llm_sandbox_mcp.base.errors import EngineUnavailable
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.testing.profiles import small_profile
from tests.memory.backend import HANDLERS, PROGRAMS, MemoryBackend, MemoryProcess

pytestmark = pytest.mark.anyio

LISTING = """
name = "listing"
title = "Listing"
extension = ".l"
version_command = ["version"]
stateful = true
[runner]
argv = ["script"]
[requires]
install = "apt-get install listing"
[libraries]
manager = "lister"
requires = ["lister"]
name_pattern = '[a-z]+'
install = ["install"]
installed = ["installed"]
provided = ["provided"]
installed_pattern = '^(?P<name>\\S+) (?P<version>\\S+)$'
"""
ON_A_CLOCK = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tests that start processes, which take real time."""
LATER = "known once its libraries are prepared"


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    (tmp_path / "languages/listing").mkdir(parents=True)
    (tmp_path / "languages/listing/handler.toml").write_text(LISTING)
    folders = (str(HANDLERS), str(tmp_path / "languages"))
    small = small_profile("embedded", tmp_path, handlers={"folders": folders}, server={"offline": True})
    python = small.language("python").model_copy(update={"libraries": ("tiny", "small")})
    return small.model_copy(update={"languages": {"python": python}})


class Printing:
    """A program that prints this, and ends with this exit code."""

    def __init__(self, stdout: bytes = b"", stderr: bytes = b"", code: int = 0) -> None:
        self.stdout, self.stderr, self.code = stdout, stderr, code

    async def __call__(self, process: MemoryProcess) -> int:
        await process.print(self.stdout)
        await process.print(self.stderr, "stderr")
        return self.code


@pytest.fixture
def programs() -> dict[str, Printing]:
    return {
        "version": Printing(b"\n1.2\nmore\n", b"a warning\n"),
        "lister": Printing(),
        "installed": Printing(b"own 1\n"),
        "provided": Printing(b"two words more\nwide 1.0\nthin 2.0\n"),
    }


@pytest.fixture
def engine(programs: dict[str, Printing]) -> MemoryBackend:
    return MemoryBackend({**PROGRAMS, **programs})


async def test_a_language_without_libraries_is_described_in_full(service: Service) -> None:
    assert await service.describe_language("script") == {
        "name": "script",
        "title": "Script",
        "aliases": [],
        "version": "",
        "file_extension": ".script",
        "keeps_state": True,
        "takes_variables": True,
        "working_directory": "/sandbox",
        "figures": [],
        "uses": [],
        "package_manager": None,
        "libraries": [],
        "examples": [{"title": "A value stays for the next run", "code": "set name value\n"}],
    }


async def test_the_first_line_of_the_version_and_what_it_comes_with_are_told_and_asked_for_once(
    service: Service, engine: MemoryBackend
) -> None:
    for _ in range(2):
        told = await service.describe_language("listing")
        assert (told["version"], told["package_manager"], "problem" in told) == ("1.2", "lister", False)
        assert told["libraries"] == [{"name": "wide", "version": "1.0"}, {"name": "thin", "version": "2.0"}]
    assert engine.made == 1
    await service.pool_until(lambda now: now.closing == 0)
    assert not engine.live


async def test_without_its_package_manager_a_language_is_described_without_libraries(
    service: Service, engine: MemoryBackend
) -> None:
    engine.programs = {name: program for name, program in engine.programs.items() if name != "lister"}
    told = await service.describe_language("listing")
    assert (told["version"], told["libraries"], "problem" in told) == ("1.2", [], False)


async def test_a_language_that_does_not_start_says_why_and_is_asked_again(
    service: Service, engine: MemoryBackend, programs: dict[str, Printing]
) -> None:
    programs["version"].stdout, programs["version"].code = b"", 1
    programs["version"].stderr = b"no such\nmore\n"
    for expected in ("no such", "it does not start"):
        told = await service.describe_language("listing")
        assert told["problem"] == f"Listing does not run here: {expected}; if it is missing: apt-get install listing"
        assert (told["version"], told["libraries"]) == (LATER, [])
        programs["version"].stderr = b""
    programs["version"].code = 0
    assert "problem" not in await service.describe_language("listing")
    assert engine.made == 3


@ON_A_CLOCK
async def test_nothing_is_prepared_only_to_describe_a_language(service: Service, engine: MemoryBackend) -> None:
    told = await service.describe_language("python")
    assert (told["version"], "problem" in told) == (LATER, False)
    assert told["libraries"] == [{"name": name, "version": LATER} for name in ("tiny", "small")]
    assert engine.made == 0


@ON_A_CLOCK
async def test_nothing_is_prepared_for_an_engine_that_cannot_work_and_what_is_prepared_needs_no_look_at_it(
    service: Service, engine: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def probe() -> list[Check]:
        nonlocal looks
        looks += 1
        await anyio.lowlevel.checkpoint()
        return [Check("memory", "missing", "it is not installed", "install it")]

    monkeypatch.setattr(engine, "probe", probe)
    with pytest.raises(EngineUnavailable, match="it is not installed; install it"):
        await execute(service, "1", language="python")
    assert looks == 1
    await service.warm(["script", "listing"])
    assert looks == 1
