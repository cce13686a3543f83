"""What the backend on bubblewrap reads of the profile."""

from ...toml_model import Section
from ..settings import Settings as EngineSettings


class Bubblewrap(Section):
    """The programs that it works with."""

    bwrap: str
    slirp4netns: str


class Settings(EngineSettings):
    """What it reads of the profile."""

    embedded: Bubblewrap
