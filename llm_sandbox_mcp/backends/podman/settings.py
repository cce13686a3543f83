"""What the backend on Podman reads of the profile."""

from ...toml_model import Section
from ..containers.settings import ContainerSettings


class Podman(Section):
    """Where Podman's service is; empty means where its own tools find it."""

    host: str


class Settings(ContainerSettings):
    """What it reads of the profile."""

    podman: Podman
