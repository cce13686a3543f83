"""Operations on images, for engines that have images."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Sandbox

OnLine = Callable[[str], None]
"""Receives a line of progress; called in a worker thread."""


@dataclass(frozen=True, slots=True)
class Template:
    """An image that was committed from a session."""

    image: str
    size: int
    """Bytes."""


class Images(ABC):
    """The images of one engine that sandboxes are made from."""

    @abstractmethod
    async def build(self, language: str, on_line: OnLine, *, base: str = "", network: str = "") -> None:
        """Builds the image of a language, on another base if one is given; `StartFailed` with the last output lines."""

    @abstractmethod
    async def pull(self, language: str, on_line: OnLine) -> None:
        """Pulls the image of a language; `StartFailed` when it cannot be pulled."""

    @abstractmethod
    async def size(self, language: str) -> int | None:
        """Bytes of the image of a language; None if the image does not exist."""

    @abstractmethod
    async def prepare(self, language: str, on_line: OnLine) -> None:
        """Makes the image of a language available in the way that the profile says; `StartFailed` if that fails."""

    @abstractmethod
    async def commit(self, sandbox: "Sandbox", image: str) -> str:
        """Makes a template from the contents of a sandbox's folders and returns its name; replaces an older template.

        Raises `InvalidArgument` if the name is not a valid image name or belongs to an image that is not a template,
        `CapacityReached` if the profile allows no more templates, and `StartFailed`.
        """

    @abstractmethod
    async def templates(self) -> list[Template]:
        """The existing templates, by name."""

    @property
    @abstractmethod
    def most_templates(self) -> int:
        """How many templates the profile allows."""

    @abstractmethod
    async def remove(self, image: str) -> None:
        """Removes a template; `InvalidArgument` if it is not a template, `StartFailed` if it is in use."""
