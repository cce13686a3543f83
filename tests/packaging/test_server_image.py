"""The image: a host that starts it with the engine's socket gets a server whose sandboxes are that engine's containers."""

import json
import os
import tarfile
from contextlib import closing
from pathlib import Path

import anyio
import docker
import pytest
from mcp import Client, StdioServerParameters

from tests.containers.engines import until
from tests.engines import base_image, docker_host, need
from tests.engines.images import build_arguments
from tests.mcp.results import answer

from .building import LIMIT, ROOT, outside, publish
from .test_metadata import PROJECT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3 * LIMIT), pytest.mark.only_in_all]

TAG = f"llm-sandbox-mcp:{PROJECT['version']}"
SOCKET = "/var/run/docker.sock"
NAMED = "grep -om1 'containers/[0-9a-f]*' /proc/self/mountinfo"
"""Prints the id of the sandbox's container, which the engine uses for the folder of its hosts file."""


@pytest.fixture(scope="module")
def host() -> str:
    """The address of the tests' own Docker, which has the images of the languages."""
    anyio.run(need, "docker")
    found = docker_host()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def archive(host: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dockerfile = (ROOT / "configs/publish/Dockerfile").read_text(encoding="utf-8")
    given = build_arguments(dockerfile, base_image.NAME).items()
    options = ["--network=host", *(f"--build-arg={name}={value}" for name, value in given)]
    folder = tmp_path_factory.mktemp("image")
    (file,) = publish("image", folder, f"--image-options={' '.join(options)}", **outside(), DOCKER_HOST=host)
    return file


def test_the_archive_has_the_image_and_its_name_in_the_registry(archive: Path) -> None:
    with tarfile.open(archive) as file:
        (image,) = json.load(file.extractfile("manifest.json"))  # type: ignore[arg-type]
        settings = json.load(file.extractfile(image["Config"]))["config"]  # type: ignore[arg-type]
    assert image["RepoTags"] == [TAG]
    template = json.loads((ROOT / "configs/publish/server.json").read_text(encoding="utf-8"))
    assert settings["Labels"]["io.modelcontextprotocol.server.name"] == template["name"]
    assert settings["User"] == "1000:1000"


@pytest.mark.usefixtures("archive")
async def test_a_host_that_starts_the_image_runs_code_in_the_engines_containers(host: str) -> None:
    socket = host.removeprefix("unix://")
    mounted = ("--volume", f"{socket}:{SOCKET}", "--group-add", str(os.stat(socket).st_gid))
    server = StdioServerParameters(
        command="docker", args=["run", "-i", "--rm", *mounted, TAG], env={**outside(), "DOCKER_HOST": host}
    )
    with closing(docker.APIClient(base_url=host, version="1.41")) as engine:

        def is_there(container: str) -> bool:
            return bool(engine.containers(all=True, filters={"id": container}))

        with anyio.fail_after(LIMIT):
            async with Client(server) as client:
                ran = await answer(client, "execute_code", code=f"n=42; {NAMED}", language="bash")
                again = {"code": "echo $n", "language": "bash", "session_id": ran["session_id"]}
                kept = await answer(client, "execute_code", **again)
                container = ran["stdout"].strip().removeprefix("containers/")
                assert is_there(container)
        assert kept["stdout"] == "42\n"
        await until(lambda: not is_there(container), LIMIT)
