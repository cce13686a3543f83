"""The embedded backend: sandboxes on bubblewrap, with no daemon."""

import sys

from ..base import Backend, Surroundings
from .settings import Settings

__all__ = ["Settings", "create"]


def create(settings: Settings, surroundings: Surroundings) -> Backend:
    """The backend; raises `ProfileError` if the profile needs a network that is not available."""
    if sys.platform != "linux":
        from .unsupported import UnsupportedSystem

        return UnsupportedSystem()
    from .backend import open_embedded

    return open_embedded(settings.embedded.bwrap, settings.embedded.slirp4netns, surroundings)
