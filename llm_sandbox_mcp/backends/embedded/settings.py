"""The part of the profile that the backend on bubblewrap reads."""

from ...toml.model import Section
from ..settings import Settings as EngineSettings


class Bubblewrap(Section):
    """The programs that the backend uses, and how it starts sandboxes."""

    bwrap: str
    slirp4netns: str
    zygotes: bool


class Settings(EngineSettings):
    """The tables of the profile for this backend."""

    embedded: Bubblewrap
