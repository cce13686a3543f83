"""A real server with `http.execute_code`, and a server that also requires a token."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...engines import host_folder
from ...local_index import local_index
from ...mcp.serving import Server, start, stop

TOKEN = secrets.token_hex(16)
BEARER = {"Authorization": f"Bearer {TOKEN}"}

SETTINGS = """
[server]
runtime = "{runtime}"
[pool]
min = 0
[rules]
custom = [{{ name = "no-threads", modules = ["threading"], severity = "high" }}]
[artifacts]
file_size = "1MiB"
[limits]
timeout = "1m"
[languages.python]
# It is empty: the installations in these tests fail before or at the index.
index = "{index}/simple"
allow = ["no-such-library"]
[audit]
# Nobody reads what the server says until it ends, and a pipe that is full would stop it.
file = "{folder}/refusals"
[http]
execute_code = {switch}
"""


def serve(folder: Path, more: str = "", switch: str = "true") -> Iterator[Server]:
    """A server with these settings; checks that it does not fail and leaves nothing behind."""
    with host_folder() as runtime, local_index() as index:
        profile = folder / "profile.toml"
        profile.write_text(SETTINGS.format(runtime=runtime, folder=folder, index=index.url, switch=switch) + more)
        server = start(profile)
        yield server
        log = stop(server)
        assert "Traceback" not in log
        assert server.process.returncode == 0, log
        assert not [*runtime.iterdir()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for callers on this machine, without a token."""
    yield from serve(tmp_path_factory.mktemp("open"))


@pytest.fixture
def passing(tmp_path: Path) -> Iterator[Server]:
    """A server for one test, which can end it."""
    yield from serve(tmp_path)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Server]:
    """A server without `http.execute_code`."""
    yield from serve(tmp_path, switch="false")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that requires a token."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text(TOKEN)
    yield from serve(folder, f'token_file = "{folder}/token"\n')
