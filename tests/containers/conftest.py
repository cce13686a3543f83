"""Real Docker and Podman, and images and settings that are each wrong in one way."""

import gc
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import docker
import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.testing.fixtures import folder, service  # noqa: F401
from llm_sandbox_mcp.wiring import open_backend
from tests.engines import absent, docker_host, need, podman_host, spare, surroundings

HOSTS = {"docker": docker_host, "podman": podman_host}


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """Collects garbage after each test: sockets that the engines' packages left open when an engine ended are found
    here, where they are expected, and not in a later test."""
    yield
    gc.collect()


@pytest.fixture(scope="package")
def only_spare_docker() -> Iterator[spare.SecureDocker]:
    if docker_host() is None:
        absent("docker", "the tests' own engine is not up")
    with spare.spare_docker() as running:
        yield running


@pytest.fixture
def spare_docker(only_spare_docker: spare.SecureDocker) -> Iterator[spare.SecureDocker]:
    """A Docker daemon that a test may end, and that can also be reached over TLS."""
    yield only_spare_docker
    only_spare_docker.start()


@pytest.fixture
def spare_podman() -> Iterator[spare.Spare]:
    """A Podman service that a test may end; it uses the containers of the shared service."""
    if podman_host() is None:
        absent("podman", "the tests' own engine is not up")
    with spare.spare_podman() as running:
        yield running


@pytest.fixture(params=HOSTS)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine that works here."""
    name: str = request.param
    anyio.run(need, name)
    return name


@pytest.fixture
def client(engine: str) -> Iterator[docker.DockerClient]:
    """A client of the engine's Docker API, which Podman has too, for what the tests do without the product."""
    made = docker.DockerClient(base_url=HOSTS[engine](), version="1.41", timeout=60)
    yield made
    made.close()


@pytest.fixture
def broken(client: docker.DockerClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """An image of a few lines on top of the base of all images; its Dockerfile is the parameter. Removed afterwards."""
    name = "llm-sandbox-mcp-broken"
    client.images.build(fileobj=io.BytesIO(request.param.encode()), tag=name, rm=True, forcerm=True)
    yield name
    client.images.remove(name, force=True)


@pytest.fixture
async def sandbox(anyio_backend: str, profile: Profile, folder: Path) -> AsyncIterator[Sandbox]:
    """A sandbox of Python's image."""
    with anyio.fail_after(60):
        backend = open_backend(profile, surroundings(folder))
        async with backend, backend.sandbox(profile.limits.policy(), backend.image_of("python")) as opened:
            yield opened
