"""The settings of containers, the same for Docker and Podman."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from ...toml.model import AbsolutePath, Many, Section
from ..settings import Settings


class Mount(Section):
    """A folder of the engine's machine that every container sees."""

    source: Annotated[str, Field(pattern="^/")]
    target: Annotated[str, Field(pattern="^/")]
    writable: bool = False


class Containers(Section):
    """The table [containers] of the profile."""

    image: Annotated[str, Field(min_length=1)]
    images: Mapping[str, str]
    user: Annotated[str, Field(pattern="^([1-9][0-9]*:[1-9][0-9]*)?$")]
    environment: Annotated[str, Field(pattern="^/")]
    prefix: Many[Annotated[str, Field(min_length=1)]]
    runtime: str
    gpus: Annotated[str, Field(pattern="^(all|[1-9][0-9]*)?$")]
    pull: Literal["never", "missing", "always"]
    registry: Annotated[str, Field(pattern="^[^ ]*$")]
    dockerfiles: Mapping[str, AbsolutePath]
    join: str
    templates: Annotated[int, Field(ge=0)]
    mounts: Many[Mount]

    def name(self, language: str) -> str:
        """The image of a language, with the registry added if its name has none."""
        return self.full(self.images.get(language) or self.image.replace("{language}", language))

    def full(self, name: str) -> str:
        """The name of an image, with the registry added if it has none."""
        first, slash, _ = name.partition("/")
        elsewhere = slash and (first == "localhost" or "." in first or ":" in first)
        return name if elsewhere or not self.registry else f"{self.registry.rstrip('/')}/{name}"


class ContainerSettings(Settings):
    """The part of the profile that every container engine reads."""

    containers: Containers

    def languages(self) -> Mapping[str, str]:
        tables = {"images": self.containers.images, "dockerfiles": self.containers.dockerfiles}
        return {f"containers.{table}.{name}": name for table, names in tables.items() for name in names}

    def files(self) -> Mapping[str, str]:
        return {f"containers.dockerfiles.{name}": path for name, path in self.containers.dockerfiles.items()}
