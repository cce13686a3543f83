"""What a place for saved sessions can do, whatever keeps the bytes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

_COPIED = 1 << 20
"""Bytes that are copied at once."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a store."""

    name: str
    size: int
    """Bytes."""
    tag: str
    """Another one for each object that takes its place."""


class Sink(ABC):
    """Takes the bytes of a new object, which exists once it is complete, and not before."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Adds bytes at the end."""

    @abstractmethod
    async def complete(self) -> None:
        """Puts the object in the place of an older one of the same name, as a whole."""


class Source(ABC):
    """The bytes of one object, which do not change while it is open, whatever others do."""

    size: int
    tag: str

    @abstractmethod
    async def read(self, start: int, length: int) -> bytes:
        """So many bytes from there; fewer only at the end."""


class Store(ABC):
    """Objects by owner and name. All methods raise `StoreFailed` if the place cannot be used, or is too slow."""

    place: str
    """For messages."""

    @abstractmethod
    async def entries(self, owner: str) -> Sequence[Entry]:
        """All complete objects of an owner."""

    @abstractmethod
    def create(self, owner: str, name: str) -> AbstractAsyncContextManager[Sink]:
        """A new object; without `complete`, nothing stays of it when the scope ends."""

    @abstractmethod
    def open(self, owner: str, name: str) -> AbstractAsyncContextManager[Source | None]:
        """An object to read; None if there is none of that name."""

    @abstractmethod
    async def remove(self, owner: str, name: str, tag: str = "") -> bool:
        """Removes an object, and returns whether it did.

        With `tag`, only the object that has it, and only if nobody reads it.
        """

    async def rename(self, owner: str, name: str, new: str) -> None:
        """Gives an object another name, in the place of what has that; does nothing if there is none.

        Where the place cannot, both are there for a moment.
        """
        if name == new:
            return
        async with self.open(owner, name) as source:
            if source is None:
                return
            async with self.create(owner, new) as sink:
                for start in range(0, source.size, _COPIED):
                    await sink.write(await source.read(start, _COPIED))
                await sink.complete()
        await self.remove(owner, name)
