"""Fixtures that make the test process a program without an event loop, on a profile with the system's Python."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.compat.llm_sandbox.portal import portal
from tests.engines import host_folder
from tests.handlers.indexes import Wheels
from tests.local_index import local_index

PROFILE = """\
[limits]
memory = "128MiB"
disk = "16MiB"
timeout = "1d"
cpu_time = "16d"
shown = "1MiB"
[sessions]
max = 100
idle_timeout = "1d"
starts_per_second = 1000.0
[pool]
languages = ["python"]
[languages.python]
libraries = []
[server]
cache = "{folder}/cache"
runtime = "{folder}/runtime"
"""


@pytest.fixture(scope="package")
def folder() -> Iterator[Path]:
    with host_folder() as made:
        yield made


@pytest.fixture(scope="package")
def profile_file(folder: Path) -> Path:
    """The profile that LLM_SANDBOX_PROFILE names in these programs."""
    file = folder / "profile.toml"
    file.write_text(PROFILE.format(folder=folder))
    return file


@pytest.fixture
def library(embedded: None, profile_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process such a program, with that profile."""
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(profile_file))


@pytest.fixture
def index() -> Iterator[str]:
    """The address of a package index that has one library, tinyanswer."""
    with local_index() as served:
        served.pages.update(Wheels.small().pages)
        yield f"{served.url}/"


@pytest.fixture
def with_index(library: None, profile_file: Path, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process a program whose profile names that package index."""
    own = tmp_path / "own.toml"
    own.write_text(profile_file.read_text().replace("libraries = []", f'libraries = []\nindex = "{index}"'))
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(own))


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """After each test, closes all sandboxes as the end of a process does."""
    yield
    portal.close()


@pytest.fixture
def rich(embedded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process a program without its own profile: it gets libraries and IPython of the profile `library`."""
    monkeypatch.delenv("LLM_SANDBOX_PROFILE", raising=False)
