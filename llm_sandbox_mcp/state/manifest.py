"""What a saved session is, as its bytes describe it themselves."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat

from ..base.results import Missing
from .encoding import Section

FORMAT = 1
"""The version of the manifest and of everything that it describes."""

_ARTIFACTS = 100_000


class KeptFile(BaseModel):
    """An artifact of the session."""

    model_config = ConfigDict(frozen=True)

    name: str
    size: int = Field(ge=0, lt=1 << 60)


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
    missing: tuple[Missing, ...] = ()
    """What could not be saved."""
    limits: Mapping[str, FiniteFloat] = {}
    """The limits that its caller had lowered."""
    artifacts: Annotated[tuple[KeptFile, ...], Field(max_length=_ARTIFACTS)] = ()
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section | None:
        """The section of that name, if there is one."""
        return next((section for section in self.sections if section.name == name), None)
