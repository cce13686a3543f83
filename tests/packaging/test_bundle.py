"""The bundle: the official tool accepts it, and a host that does what its manifest says gets a server that works.

The tool and what hosts use to read manifests are one npm package; uv makes the environment, as in a host.
"""

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from uv import find_uv_bin

from tests.mcp.results import answer

from .building import BUILD, LIMIT, outside, publish, run

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3 * LIMIT), pytest.mark.only_in_all]

FIRST_START = 240.0
"""Seconds for uv to download and install everything."""


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the official package."""
    folder = tmp_path_factory.mktemp("npm")
    (package,) = [line.split('"')[1] for line in BUILD.read_text().splitlines() if line.startswith("MCPB = ")]
    run("npm", "install", "--silent", "--no-audit", "--no-fund", package, cwd=folder, **outside())
    return folder / "node_modules" / "@anthropic-ai" / "mcpb"


@pytest.fixture(scope="module")
def bundle(built: Path) -> Path:
    (file,) = publish("bundle", built, **outside())
    return file


@pytest.fixture
def unpacked(bundle: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder)
    return folder


def started(npm: Path, folder: Path, **settings: object) -> Mapping[str, Any]:
    """The command, the arguments and the environment with which a host starts the server."""
    program = Path(__file__).with_name("resolve.mjs")
    printed = run("node", program, npm / "dist/index.js", folder, json.dumps(settings), cwd=folder)
    resolved: Mapping[str, Any] = json.loads(printed)
    return resolved


def test_a_bundle_has_the_wheel_and_one_version_of_each_dependency(unpacked: Path, wheel: Path) -> None:
    assert {path.name for path in unpacked.iterdir()} == {"manifest.json", "pyproject.toml", "start.py", wheel.name}
    project = (unpacked / "pyproject.toml").read_text()
    assert f'path = "{wheel.name}"' in project
    assert '"pydantic==' in project and '"docker==' in project
    assert "://" not in project


def test_without_settings_no_folder_is_open(unpacked: Path, npm: Path) -> None:
    given = started(npm, unpacked)
    assert given["args"] == ["run", "--directory", str(unpacked), "start.py", "--read", "--write"]
    assert given["env"] == {"LLM_SANDBOX_PROFILE": "auto"}


@pytest.mark.usefixtures("embedded")
async def test_a_host_starts_the_bundle_with_the_chosen_folders(unpacked: Path, npm: Path, tmp_path: Path) -> None:
    for name in ("one", "two words", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "two words/n.txt").write_text("42")
    read, write = [str(tmp_path / "one"), str(tmp_path / "two words")], [str(tmp_path / "out")]
    given = started(npm, unpacked, folders=read, writable_folders=write)
    # uv leaves a lock among the temporary files.
    own = {"PATH": f"{Path(find_uv_bin()).parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    environment = {**outside(), **own, **given["env"]}
    server = StdioServerParameters(command=given["command"], args=given["args"], env=environment)
    with anyio.fail_after(FIRST_START):
        async with Client(server) as client:
            ran = await answer(client, "execute_code", code="echo $((6 * 7))", language="bash")
            session = ran["session_id"]
            copied = {"session_id": session, "direction": "in", "host_path": f"{read[1]}/n.txt", "path": "n.txt"}
            await answer(client, "copy_file", **copied)
            copied = {"session_id": session, "direction": "out", "host_path": f"{write[0]}/n.txt", "path": "n.txt"}
            await answer(client, "copy_file", **copied)
    assert ran["stdout"] == "42\n"
    assert (tmp_path / "out/n.txt").read_text() == "42"
