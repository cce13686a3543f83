"""Connections of many listeners that share a maximum, so that none of them can leave another without."""

from collections.abc import Iterable

import anyio

SETTLED = 1.0
"""Seconds without a request after which a connection counts as idle: the first request may be on its way before."""


class Place:
    """What a connection holds while it is open."""

    def __init__(self, listener: object) -> None:
        self.listener = listener
        self.scope = anyio.CancelScope()
        """What its connection does; it is cancelled when another one takes the place."""
        self.idle = True
        """Whether no request is in progress."""
        self.since = anyio.current_time()
        """When data last moved in the request in progress; if there is none, when the wait for one began."""

    def wait(self) -> None:
        """No request is in progress from now on."""
        self.idle, self.since = True, anyio.current_time()

    def work(self) -> None:
        """A request is in progress from now on."""
        self.idle, self.since = False, anyio.current_time()

    def moved(self) -> None:
        """Data of the request or of its response moved."""
        self.since = anyio.current_time()


class Shared:
    """The places of all listeners that share it. Where all are taken, one that waits gets that of another connection.

    This is an idle one of the listener with the most connections among those with idle ones. If there is none, and the
    listener with the most has at least two more than the one that waits, it is that one's connection in which no data
    moved for the longest time, also if a request is in progress.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[object, set[Place]] = {}
        self._left = anyio.Event()

    async def take(self, listener: object, most: int) -> Place:
        """A place for one more connection of a listener, once it has fewer than `most`, or an idle one gave way."""
        while not self._make_room(listener, most):
            with anyio.move_on_after(SETTLED):
                await self._left.wait()
        place = Place(listener)
        self._places.setdefault(listener, set()).add(place)
        return place

    def leave(self, place: Place) -> None:
        """Gives the place back, if no other connection has taken it."""
        places = self._places.get(place.listener, set())
        places.discard(place)
        if not places:
            self._places.pop(place.listener, None)
        self._left.set()
        self._left = anyio.Event()

    def _make_room(self, listener: object, most: int) -> bool:
        own = self._places.get(listener, set())
        if len(own) < most and sum(map(len, self._places.values())) < self._most:
            return True
        given_up = self._idle([own] if len(own) >= most else self._places.values())
        if given_up is None and len(own) < most:
            largest = max(self._places.values(), key=len)
            given_up = min(largest, key=_since) if len(largest) >= len(own) + 2 else None
        if given_up is None:
            return False
        self.leave(given_up)
        given_up.scope.cancel()
        return True

    def _idle(self, among: Iterable[set[Place]]) -> Place | None:
        """The place of the connection that is idle for the longest time, of the listener with the most connections."""
        settled = anyio.current_time() - SETTLED
        for places in sorted(among, key=len, reverse=True):
            if idle := [place for place in places if place.idle and place.since <= settled]:
                return min(idle, key=_since)
        return None


def _since(place: Place) -> float:
    return place.since
