"""What can be done about the images of an engine that has them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Sandbox

OnLine = Callable[[str], None]
"""Takes a line of progress; called in a worker thread."""


@dataclass(frozen=True, slots=True)
class Template:
    """An image that a session was committed to."""

    image: str
    size: int
    """Bytes."""


class Images(ABC):
    """The images of one engine that sandboxes are made of."""

    @abstractmethod
    async def build(self, language: str, on_line: OnLine, *, base: str = "", network: str = "") -> None:
        """Builds the image of a language, on another base where one is given; `StartFailed` with the last lines."""

    @abstractmethod
    async def pull(self, language: str, on_line: OnLine) -> None:
        """Fetches the image of a language; `StartFailed` when it cannot be had."""

    @abstractmethod
    async def size(self, language: str) -> int | None:
        """How many bytes the image of a language has; None when it is not there."""

    @abstractmethod
    async def prepare(self, language: str, on_line: OnLine) -> None:
        """Sees to it that the image of a language is there, as the profile says; `StartFailed` when it cannot be."""

    @abstractmethod
    async def commit(self, sandbox: "Sandbox", image: str) -> str:
        """Makes a template of what a sandbox has in its folders, in the place of one of that name; returns its name.

        Raises `InvalidArgument` for a name that no image can have, or that another image has, `CapacityReached` where
        the profile allows no more of them, and `StartFailed`.
        """

    @abstractmethod
    async def templates(self) -> list[Template]:
        """The templates that are there, by name."""

    @property
    @abstractmethod
    def most_templates(self) -> int:
        """How many templates the profile allows."""

    @abstractmethod
    async def remove(self, image: str) -> None:
        """Removes a template; `InvalidArgument` for what is none, `StartFailed` for one that is in use."""
