"""What a saved session is, as its bytes describe it themselves."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat

from ..base.results import Missing
from .encoding import Section

FORMAT = 3
"""The version of the manifest and of everything that it describes."""

_ARTIFACTS = 100_000
_LAYERS = 1000


class KeptFile(BaseModel):
    """An artifact of the session."""

    model_config = ConfigDict(frozen=True)

    name: str
    content: Section


class Manifest(BaseModel):
    """Everything about a saved session but its contents."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT, strict=True)]
    name: str
    created: AwareDatetime
    """By the clock of the server that saved it."""
    version: str
    """Of the server that saved it."""
    language: str
    """Its sandbox is made for this one."""
    runs: int = Field(ge=0)
    interrupted: bool = False
    """Whether code ran when the server ended, and was interrupted to save it."""
    untold: tuple[str, ...] = ()
    """What its caller must know of earlier losses, and does not yet."""
    variables: Mapping[str, Annotated[int, Field(ge=0)]]
    """How many were saved, by language."""
    files: int = Field(ge=0)
    """Files and folders."""
    libraries: tuple[str, ...] = ()
    """The languages that have libraries among the files."""
    missing: tuple[Missing, ...] = ()
    """What could not be saved."""
    limits: Mapping[str, FiniteFloat] = {}
    """The limits that its caller had lowered."""
    artifacts: Annotated[tuple[KeptFile, ...], Field(max_length=_ARTIFACTS)] = ()
    layers: Annotated[tuple[Section, ...], Field(min_length=1, max_length=_LAYERS)]
    """Its files, with the variables: the first has all of them, those that follow what has changed since."""

    @property
    def objects(self) -> set[str]:
        """The objects of the store that have its contents."""
        return {section.object for section in (*self.layers, *(file.content for file in self.artifacts))}
