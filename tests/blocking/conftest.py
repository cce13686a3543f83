"""Programs that know no event loop, on a profile with Python as this system has it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.blocking.portal import portal
from tests.engines import host_folder
from tests.handlers.indexes import Wheels
from tests.unit.local_index import local_index

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
    """What programs find in LLM_SANDBOX_PROFILE."""
    file = folder / "profile.toml"
    file.write_text(PROFILE.format(folder=folder))
    return file


@pytest.fixture
def library(embedded: None, profile_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as such a program."""
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(profile_file))


@pytest.fixture
def index() -> Iterator[str]:
    """The address of an index that has one library, tinyanswer."""
    with local_index() as served:
        served.pages.update(Wheels.small().pages)
        yield f"{served.url}/"


@pytest.fixture
def with_index(library: None, profile_file: Path, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as a program whose profile has that index."""
    own = tmp_path / "own.toml"
    own.write_text(profile_file.read_text().replace("libraries = []", f'libraries = []\nindex = "{index}"'))
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(own))


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """The end of the process, as far as sandboxes go."""
    yield
    portal.close()


@pytest.fixture
def rich(embedded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as a program without a profile, which has the libraries and the IPython of `library`."""
    monkeypatch.delenv("LLM_SANDBOX_PROFILE", raising=False)
