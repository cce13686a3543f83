"""The part of the profile that the backend on Podman reads."""

from ...toml.model import Section
from ..containers.settings import ContainerSettings


class Podman(Section):
    """Where Podman's service is; empty means where Podman's own tools find it."""

    host: str


class Settings(ContainerSettings):
    """The tables of the profile for Podman."""

    podman: Podman
