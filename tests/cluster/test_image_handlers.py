"""Images that contain the languages' handlers: their pods do not get them sent, unless the server has others."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.backends.containers.agent import pack_handlers
from llm_sandbox_mcp.host.folders import HANDLERS
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import absent, docker, docker_host, kubeconfig, lack_own_cluster, small_profile
from tests.engines.images import client

from .conftest import Serving
from .proxying import proxied
from .server_image import import_image

pytestmark = pytest.mark.anyio

NAME = "llm-sandbox-mcp-scratch/{language}"
PLAIN = "llm-sandbox-mcp-{language}"
OWN = "MARK=of-these-handlers\n"


@pytest.fixture
def changed_handlers(folder: Path) -> str:
    """A folder with a handler of Bash that no image contains: it sets a variable."""
    shutil.copytree(HANDLERS / "bash", folder / "changed/bash")
    shell = folder / "changed/bash/session.sh"
    shell.write_text(OWN + shell.read_text())
    return str(folder / "changed")


@pytest.fixture
async def image(cluster: Any, folder: Path) -> AsyncIterator[str]:
    """The image of Bash as `images build` makes it, which the cluster has."""
    containerd = Path(kubeconfig() or "").with_name("containerd.sock")
    if not containerd.is_socket():
        lack_own_cluster(f"no image can be loaded into a cluster without {containerd}")
    if docker_host() is None:
        absent("docker", "it builds the image")
    (folder / "own").mkdir()
    (folder / "own/Dockerfile").write_text("FROM llm-sandbox-mcp-bash\n")
    containers = {"image": NAME, "dockerfiles": {"bash": str(folder / "own/Dockerfile")}}
    async with open_service(small_profile("docker", folder, containers=containers)) as service:
        backend = await service.backend.chosen()
        assert backend.images is not None
        await backend.images.build("bash", lambda line: None)
        name = backend.image_of("bash")
    with client(docker.daemon()) as engine:
        try:
            yield await anyio.to_thread.run_sync(import_image, engine, name, containerd)
        finally:
            await anyio.to_thread.run_sync(engine.images.remove, name)


async def test_handlers_are_sent_only_to_pods_whose_image_does_not_contain_them(
    serving: Serving, cluster: Any, folder: Path, image: str, changed_handlers: str
) -> None:
    handlers = len(pack_handlers({one: each.folder for one, each in load_languages(()).items()}).archive)

    async with proxied(cluster.api_client.configuration) as proxy:
        config = proxy.write_kubeconfig(folder)

        async def sent(image: str, says: str, **changes: Any) -> int:
            """Bytes sent to one pod, from its start until its first run has ended."""
            async with serving({"kubeconfig": config, "image": image}, **changes) as service:
                before = proxy.sent
                result = await execute(service, "echo $MARK", language="bash")
                assert (result.status, result.stdout.text) == ("ok", f"{says}\n"), result
                return proxy.sent - before

        plain = await sent(PLAIN, "")
        prepared = await sent(image, "")
        others = await sent(image, "of-these-handlers", handlers={"folders": (changed_handlers,)})
    print(f"sent to a pod: {plain} bytes to one of a plain image, {prepared} if its image contains the handlers")
    assert plain > handlers
    assert others > handlers
    assert prepared < plain - 0.95 * handlers
