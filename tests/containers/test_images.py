"""Images that are built when they are needed, and the progress that callers see."""

import contextlib
import io
import os
from pathlib import Path

import anyio
import docker
import docker.errors
import pytest

from llm_sandbox_mcp.backends.containers.agent import pack_handlers
from llm_sandbox_mcp.backends.containers.templates import LABEL
from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import small_profile

pytestmark = pytest.mark.anyio

NAME = "llm-sandbox-mcp-scratch/own"


async def test_a_dockerfile_of_the_profile_is_built_on_the_first_use_which_gets_the_progress(
    engine: str, folder: Path, client: docker.DockerClient
) -> None:
    (folder / "own").mkdir()
    (folder / "own/Dockerfile").write_text("FROM llm-sandbox-mcp-bash\nCOPY mark /etc/mark\n# step\nRUN echo so far\n")
    (folder / "own/mark").write_text(folder.name)
    own = {"images": {"bash": NAME}, "dockerfiles": {"bash": str(folder / "own/Dockerfile")}}
    heard: list[str] = []

    async def hear(line: str) -> None:
        heard.append(line)

    try:
        with anyio.fail_after(60):
            async with open_service(small_profile(engine, folder, containers=own)) as service:
                # A Bash run in a sandbox of another language does not need Bash's own image.
                other = await execute(service, "1", on_progress=hear)
                session = other.session_id
                there = await execute(service, "echo a", language="bash", session_id=session, on_progress=hear)
                assert (there.stdout.text, heard) == ("a\n", [])
                first = await execute(service, "cat /etc/mark", language="bash", on_progress=hear)
                assert first.stdout.text == folder.name
                assert any("COPY mark" in line for line in heard) and any("so far" in line for line in heard), heard
                # It contains the handlers, under the name that its agent expects.
                named = await execute(service, "ls /opt/handlers-*.tar.gz", language="bash")
                handlers = {one: each.folder for one, each in service.languages.items()}
                assert named.stdout.text == f"/opt/{pack_handlers(handlers).name}\n"
                built = len(heard)
                again = await execute(service, "cat /etc/mark", language="bash", on_progress=hear)
                assert (again.stdout.text, len(heard)) == (folder.name, built)
            image = client.images.get(NAME).id
            async with open_service(small_profile(engine, folder, containers=own)) as service:
                later = await execute(service, "cat /etc/mark", language="bash", on_progress=hear)
                assert (later.stdout.text, len(heard)) == (folder.name, built)
            assert client.images.get(NAME).id == image
    finally:
        client.images.remove(NAME, force=True)


async def test_images_that_were_built_and_committed_under_a_strict_umask_are_used(
    engine: str, folder: Path, client: docker.DockerClient
) -> None:
    (folder / "own").mkdir()
    (folder / "own/Dockerfile").write_text("FROM llm-sandbox-mcp-bash\n")
    template = f"{NAME}-template"
    own = {"images": {"bash": NAME}, "dockerfiles": {"bash": str(folder / "own/Dockerfile")}}
    committed = {"images": {"bash": template}}
    before = os.umask(0o077)
    try:
        with anyio.fail_after(60):
            async with open_service(small_profile(engine, folder, containers=own)) as service:
                done = await execute(service, "echo kept > kept; stat -c %a /opt/handlers-*", language="bash")
                assert done.stdout.text == "644\n", done
                await service.sessions.commit(done.session_id, template)
            async with open_service(small_profile(engine, folder, containers=committed)) as service:
                done = await execute(service, "cat kept", language="bash")
                assert done.stdout.text == "kept\n", done
            # One of an older server's: handlers that code's user cannot read are sent.
            older = f"FROM {NAME}\nUSER root\nRUN chmod 600 /opt/handlers-*\n".encode()
            client.images.build(fileobj=io.BytesIO(older), tag=template, rm=True)
            async with open_service(small_profile(engine, folder, containers=committed)) as service:
                done = await execute(service, "stat -c %a /opt/handlers-*", language="bash")
                assert done.stdout.text == "600\n", done
    finally:
        os.umask(before)
        # The committed one has lost its name to the later one.
        nameless = [str(image.id) for image in client.images.list(filters={"label": f"{LABEL}={template}:latest"})]
        for image in (template, NAME, *nameless):
            with contextlib.suppress(docker.errors.NotFound):
                client.images.remove(image, force=True)


async def test_a_failure_of_the_build_reaches_the_caller_after_its_last_lines(engine: str, folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM llm-sandbox-mcp-bash\nRUN echo so far; exit 3\n")
    own = {"images": {"bash": NAME}, "dockerfiles": {"bash": str(folder / "Dockerfile")}}
    heard: list[str] = []

    async def hear(line: str) -> None:
        heard.append(line)

    with anyio.fail_after(60):
        async with open_service(small_profile(engine, folder, containers=own)) as service:
            with pytest.raises(StartFailed, match=f"{NAME} cannot be built by {engine} .*so far.*; fix its Dockerfile"):
                await execute(service, "1", language="bash", on_progress=hear)
            assert service.sessions.list() == ()
    assert any("so far" in line for line in heard), heard
