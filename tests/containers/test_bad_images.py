"""An unusable image is soon reported by name, with its engine and the fix, and nothing is left behind."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import docker
import pytest

from llm_sandbox_mcp.backends.containers.backend import LABEL
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.wiring import open_backend
from tests.deadlines import within
from tests.engines import small_profile, surroundings

pytestmark = pytest.mark.anyio

BASE = "FROM llm-sandbox-mcp-base\n"
SOON = 10.0


async def refusal(engine: str, folder: Path, client: docker.DockerClient, image: str, **containers: object) -> str:
    """The error when no sandbox can be made of an image, or none that runs Python."""
    settings: Mapping[str, object] = {"image": image, **containers}
    places = surroundings(folder)
    with pytest.raises(StartFailed) as raised, within(SOON):  # noqa: PT012 - the ends of the scopes are tested
        async with open_backend(small_profile(engine, folder, containers=settings), places) as backend:
            policy = small_profile(engine, folder).limits.policy()
            async with backend.sandbox(policy, backend.image_of("python")) as sandbox:
                await sandbox.run(["python3", "-c", "pass"], {"PATH": PATH})
    with within(SOON):
        # The engine reports that a removal has begun, but not when it is done.
        while client.api.containers(all=True, filters={"label": f"{LABEL}={places.runtime.name}"}):
            await anyio.sleep(0.05)
    assert "\n" not in str(raised.value)
    return str(raised.value)


async def test_a_missing_image_is_not_pulled_when_that_is_forbidden(
    engine: str, folder: Path, client: docker.DockerClient
) -> None:
    said = await refusal(engine, folder, client, "llm-sandbox-mcp-nowhere", pull="never")
    assert engine in said and "has no image llm-sandbox-mcp-nowhere" in said and "images build" in said


@pytest.mark.parametrize("when", ["missing", "always"])
async def test_an_image_that_cannot_be_pulled_says_why(
    engine: str, folder: Path, client: docker.DockerClient, when: str
) -> None:
    # Nothing listens at this address; the name of a registry would first have to be resolved.
    said = await refusal(engine, folder, client, "nowhere", pull=when, registry="127.0.0.1:9/sandboxes")
    assert engine in said and "127.0.0.1:9/sandboxes/nowhere cannot be pulled" in said and "check its name" in said


@pytest.mark.parametrize("broken", [f"{BASE}RUN rm /bin/tar"], indirect=True)
async def test_an_image_without_tar_is_reported(
    engine: str, folder: Path, client: docker.DockerClient, broken: str
) -> None:
    said = await refusal(engine, folder, client, broken)
    assert f"image {broken} on {engine} has no tar" in said and "images build" in said


@pytest.mark.parametrize("broken", [f"{BASE}RUN rm /bin/sh", "FROM scratch\nENV A=b"], indirect=True)
async def test_an_image_without_a_shell_is_reported(
    engine: str, folder: Path, client: docker.DockerClient, broken: str
) -> None:
    said = await refusal(engine, folder, client, broken)
    assert engine in said and broken in said and "use an image with sh" in said


@pytest.mark.parametrize("broken", [f"{BASE}RUN ln -sf true /bin/sh"], indirect=True)
async def test_a_container_that_ends_at_once_is_reported(
    engine: str, folder: Path, client: docker.DockerClient, broken: str
) -> None:
    said = await refusal(engine, folder, client, broken)
    assert (
        f"image {broken} on {engine} ended at once" in said and "use an image with sh, tar, gzip and GNU find" in said
    )


@pytest.mark.parametrize("broken", [f"{BASE}RUN mkdir -p /opt/handlers; rm /usr/bin/python3*"], indirect=True)
async def test_a_program_that_is_missing_from_the_image_is_named_with_the_image(
    engine: str, folder: Path, client: docker.DockerClient, broken: str
) -> None:
    said = await refusal(engine, folder, client, broken, user="1000:1000")
    assert "cannot start python3" in said and f"no such program in image {broken} on {engine}" in said


async def test_an_own_dockerfile_of_the_operator_is_built_when_its_image_is_missing(
    engine: str, folder: Path, client: docker.DockerClient
) -> None:
    (folder / "own").mkdir()
    (folder / "own/Dockerfile").write_text(f"{BASE}COPY mark /etc/mark\nRUN mkdir -p /opt/handlers\n")
    (folder / "own/mark").write_text("mine\n")
    own = {"image": "llm-sandbox-mcp-own", "dockerfiles": {"python": str(folder / "own/Dockerfile")}}
    profile = small_profile(engine, folder, containers=own)
    try:
        with anyio.fail_after(60):
            async with (
                open_backend(profile, surroundings(folder)) as backend,
                backend.sandbox(profile.limits.policy(), backend.image_of("python")) as sandbox,
            ):
                assert (await sandbox.run(["cat", "/etc/mark"], {"PATH": PATH})).stdout == b"mine\n"
    finally:
        client.images.remove("llm-sandbox-mcp-own", force=True)


async def test_a_dockerfile_that_fails_is_reported_with_its_last_lines(
    engine: str, folder: Path, client: docker.DockerClient
) -> None:
    (folder / "own").mkdir()
    (folder / "own/Dockerfile").write_text(f"{BASE}RUN echo so far so good; exit 3\n")
    own = {"python": str(folder / "own/Dockerfile")}
    said = await refusal(engine, folder, client, "llm-sandbox-mcp-own", dockerfiles=own)
    assert engine in said and "llm-sandbox-mcp-own cannot be built" in said and "so far so good" in said
    assert "fix its Dockerfile" in said
