"""What a saved session is, as its bytes describe it themselves."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ..base.results import Missing
from .encoding import Section

FORMAT = 1
"""The version of the manifest and of everything that it describes."""


class KeptFile(BaseModel):
    """An artifact of the session."""

    model_config = ConfigDict(frozen=True)

    name: str
    size: int = Field(ge=0)


class Manifest(BaseModel):
    """Everything about a saved session but its contents."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int
    name: str
    created: datetime
    """By the clock of the server that saved it."""
    version: str
    """Of the server that saved it."""
    language: str
    """Its sandbox is made for this one."""
    runs: int = Field(ge=0)
    variables: Mapping[str, Annotated[int, Field(ge=0)]]
    """How many were saved, by language."""
    files: int = Field(ge=0)
    """Files and folders."""
    missing: tuple[Missing, ...] = ()
    """What could not be saved."""
    limits: Mapping[str, float] = {}
    """The limits that its caller had lowered."""
    artifacts: tuple[KeptFile, ...] = ()
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section | None:
        """The section of that name, if there is one."""
        return next((section for section in self.sections if section.name == name), None)
