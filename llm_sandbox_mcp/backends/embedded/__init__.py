"""The embedded backend: sandboxes on bubblewrap, with no daemon."""

from ...toml_model import Section
from ..base import Backend, Surroundings
from ..settings import Settings as EngineSettings


class Bubblewrap(Section):
    """The programs that it works with."""

    bwrap: str
    slirp4netns: str


class Settings(EngineSettings):
    """What it reads of the profile."""

    embedded: Bubblewrap


def create(settings: Settings, surroundings: Surroundings) -> Backend:
    """The backend; raises `ProfileError` where the profile wants a network that cannot be had."""
    from .backend import open_embedded

    return open_embedded(settings.embedded.bwrap, settings.embedded.slirp4netns, surroundings)
