"""What the backend on Docker reads of the profile."""

from ...toml_model import Section
from ..containers.settings import ContainerSettings


class Docker(Section):
    """Where Docker is; empty means where its own tools find it."""

    host: str
    context: str
    ca: str
    cert: str
    key: str


class Settings(ContainerSettings):
    """What it reads of the profile."""

    docker: Docker
