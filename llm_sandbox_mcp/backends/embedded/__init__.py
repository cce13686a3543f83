"""The embedded backend: sandboxes on bubblewrap, with no daemon."""

import sys

TYPE_CHECKING = False  # without `typing`, which the launcher needs as little
if TYPE_CHECKING:
    from ..base import Backend, Surroundings
    from .settings import Settings as Settings

__all__ = ["Settings", "create"]


def create(settings: "Settings", surroundings: "Surroundings") -> "Backend":
    """The backend; raises `ProfileError` if the profile needs a network that is not available."""
    if sys.platform != "linux":
        from .unsupported import UnsupportedSystem

        return UnsupportedSystem()
    from .backend import open_embedded

    section = settings.embedded
    return open_embedded(section.bwrap, section.slirp4netns, surroundings, zygotes=section.zygotes)


def __getattr__(name: str) -> object:
    # Imported at the first use: the launcher, which every server starts, imports this package too.
    if name == "Settings":
        from .settings import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
