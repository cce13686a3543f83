"""The part of the profile that the backend on Docker reads."""

from collections.abc import Mapping

from ...toml.model import Section
from ..containers.settings import ContainerSettings


class Docker(Section):
    """Where Docker is; empty means where Docker's own tools find it."""

    host: str
    context: str
    ca: str
    cert: str
    key: str


class Settings(ContainerSettings):
    """The tables of the profile for Docker."""

    docker: Docker

    def files(self) -> Mapping[str, str]:
        own = {"docker.ca": self.docker.ca, "docker.cert": self.docker.cert, "docker.key": self.docker.key}
        return {**super().files(), **own}
