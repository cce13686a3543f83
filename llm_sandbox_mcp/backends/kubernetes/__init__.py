"""The backend on Kubernetes."""

from ..base import Backend, Surroundings
from .settings import Settings

__all__ = ["Settings", "create"]


def create(settings: Settings, surroundings: Surroundings) -> Backend:
    """The backend, which connects to its cluster when it is first needed."""
    from .backend import PodBackend

    return PodBackend(settings.kubernetes, surroundings)
