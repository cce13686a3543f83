"""The backend on Docker."""

from ...toml_model import Section
from ..base import Backend, Surroundings
from ..containers.settings import ContainerSettings


class Docker(Section):
    """Where Docker is; empty means where its own tools find it."""

    host: str
    context: str
    ca: str
    cert: str
    key: str


class Settings(ContainerSettings):
    """What it reads of the profile."""

    docker: Docker


def create(settings: Settings, surroundings: Surroundings) -> Backend:
    """The backend, whose engine is looked for when it is first needed."""
    from ..containers.backend import ContainerBackend
    from .engine import find_engine

    docker = settings.docker
    return ContainerBackend(
        "docker", lambda: find_engine(docker, surroundings.environ), settings.containers, surroundings
    )
