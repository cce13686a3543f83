"""Sessions that servers have put aside, by their ids."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from ..base.errors import UnknownState
from ..base.principal import Principal
from .saved import Bounds, Reader, SavedSessions, Writer
from .store import Store

_LIVE = ".live"
"""Ends the name of a state whose session went on after it: unless it is written again, what came later is lost."""


class KeptSessions:
    """The states of sessions by their ids; an owner has, sees and replaces only those of their own."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._states = SavedSessions(store, bounds, "kept")

    @asynccontextmanager
    async def writing(self, owner: Principal, session_id: str, needed: Callable[[str], bool]) -> AsyncIterator[Writer]:
        """The state of a session that ends with it, in the place of an older one.

        Afterwards, what is beyond the bounds goes, but not the states of sessions that are `needed`.
        """
        other = f"{session_id}{_LIVE}"
        async with self._states.writing(
            owner, session_id, lambda name: needed(name.removesuffix(_LIVE)), other=other
        ) as writer:
            yield writer

    @asynccontextmanager
    async def reading(self, owner: Principal, session_id: str) -> AsyncIterator[tuple[Reader, bool]]:
        """The state of a session, and whether the session ended with it; `UnknownState` if it was not kept."""
        async with AsyncExitStack() as scope:
            ended = True
            try:
                reader = await scope.enter_async_context(self._states.reading(owner, session_id))
            except UnknownState:
                ended = False
                reader = await scope.enter_async_context(self._states.reading(owner, f"{session_id}{_LIVE}"))
            yield reader, ended

    async def go_on(self, owner: Principal, session_id: str) -> None:
        """Takes note that a session goes on after its state."""
        await self._states.rename(owner, session_id, f"{session_id}{_LIVE}")

    async def remove(self, owner: Principal, session_id: str) -> bool:
        """Removes the state of a session, and its bytes, if there is one; returns whether there was."""
        names = session_id, f"{session_id}{_LIVE}"
        return any([await self._states.remove(owner, name) for name in names])

    async def use(self, owner: Principal) -> str:
        """How much an owner has, against the bounds, in words."""
        return await self._states.use(owner)
