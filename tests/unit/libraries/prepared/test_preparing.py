"""What a language needs from the host before it can run, and why it cannot be prepared."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.layout import ENVIRONMENTS, TOOLS
from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.languages.languages import Languages, included_languages
from llm_sandbox_mcp.libraries.prepared.preparing import Preparer, environment_places
from llm_sandbox_mcp.profile.profile import load_profile
from tests.memory.backend import MemoryBackend

pytestmark = pytest.mark.anyio

LANGUAGES: Languages = included_languages()
OFFLINE = load_profile(over={"server": {"offline": True}, "languages": {"python": {"libraries": ["tiny"]}}})


async def test_where_nothing_can_be_written_the_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    async with Preparer(OFFLINE, LANGUAGES, tmp_path / "cache", {}, MemoryBackend()) as preparer:
        with pytest.raises(StartFailed, match=r"^python cannot be prepared in .*/cache: Not a directory; free disk"):
            await preparer.places(LANGUAGES["python"])


async def test_offline_a_language_runs_without_the_libraries_that_are_not_there(tmp_path: Path) -> None:
    python = LANGUAGES["python"]
    async with Preparer(OFFLINE, LANGUAGES, tmp_path, {}, MemoryBackend()) as preparer:
        assert not await preparer.ready(python)
        places = await preparer.places(python)
        assert places.lacking == "the server works offline (server.offline), and they are not prepared"
        assert not places.complete
        assert places.environment.startswith(f"{ENVIRONMENTS}/python-")
        assert places.tools.startswith(f"{TOOLS}/uv-")
        assert tmp_path / "environments" / places.environment.split("/")[-2] in environment_places(
            OFFLINE, LANGUAGES, tmp_path
        )
        assert await preparer.ready(python)
        assert await preparer.places(python) is places


async def test_an_image_with_an_environment_of_its_own_needs_nothing_of_the_host(tmp_path: Path) -> None:
    engine = MemoryBackend()
    engine.environment = "/opt/own"
    async with Preparer(OFFLINE, LANGUAGES, tmp_path / "cache", {}, engine) as preparer:
        assert await preparer.ready(LANGUAGES["python"])
        places = await preparer.places(LANGUAGES["python"])
        assert (places.environment, places.tools, places.complete) == ("/opt/own", "/opt/own/bin", True)
        await preparer.image(LANGUAGES["python"], pytest.fail)
    assert not (tmp_path / "cache").exists()
