"""The backend on Podman."""

from ...toml_model import Section
from ..base import Backend, Surroundings
from ..containers.settings import ContainerSettings


class Podman(Section):
    """Where Podman's service is; empty means where its own tools find it."""

    host: str


class Settings(ContainerSettings):
    """What it reads of the profile."""

    podman: Podman


def create(settings: Settings, surroundings: Surroundings) -> Backend:
    """The backend, whose engine is looked for when it is first needed."""
    from ..containers.backend import ContainerBackend
    from .engine import find_engine

    return ContainerBackend(
        "podman", lambda: find_engine(settings.podman, surroundings), settings.containers, surroundings
    )
