"""The backend on Podman."""

from ..base import Backend, Surroundings
from .settings import Settings

__all__ = ["Settings", "create"]


def create(settings: Settings, surroundings: Surroundings) -> Backend:
    """The backend; it looks for its engine when it first needs it."""
    from ..containers.backend import ContainerBackend
    from .engine import find_engine

    return ContainerBackend(
        "podman", lambda: find_engine(settings.podman, surroundings), settings.containers, surroundings
    )
