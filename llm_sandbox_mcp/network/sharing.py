"""Connections of many owners that share a maximum, so that none of them can leave another without."""

import ipaddress
from collections.abc import Callable, Iterable

import anyio

SETTLED = 1.0
"""Seconds without a request after which a connection counts as idle: the first request may be on its way before."""


class Place:
    """What a connection holds while it is open."""

    def __init__(self, owner: object, end: Callable[[], None]) -> None:
        """`owner` is what it counts for, such as a listener; `end` is called when another one takes the place."""
        self.owner = owner
        self.end = end
        self.idle = True
        """Whether no request is in progress."""
        self.late = False
        """Whether it gives way only after other idle ones of its owner."""
        self.since = anyio.current_time()
        """When data last moved in the request in progress; if there is none, when the wait for one began."""

    def wait(self, *, late: bool = False) -> None:
        """No request is in progress from now on."""
        self.idle, self.late, self.since = True, late, anyio.current_time()

    def work(self) -> None:
        """A request is in progress from now on."""
        self.idle, self.since = False, anyio.current_time()

    def moved(self) -> None:
        """Data of the request or of its response moved."""
        self.since = anyio.current_time()


class Shared:
    """The places of all owners that share it. Where all are taken, one that waits gets that of another connection.

    This is an idle one of the owner with the most connections among those with idle ones. If there is none, and the
    owner with the most has at least two more than the one that waits, it is that one's connection in which no data
    moved for the longest time, also if a request is in progress.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[object, set[Place]] = {}
        self._left = anyio.Event()

    async def take(self, owner: object, most: int, end: Callable[[], None]) -> Place:
        """A place for one more connection of an owner, once it has fewer than `most`, or an idle one gave way."""
        while (place := self.take_now(owner, most, end)) is None:
            with anyio.move_on_after(SETTLED):
                await self._left.wait()
        return place

    def take_now(self, owner: object, most: int, end: Callable[[], None]) -> Place | None:
        """A place for one more connection of an owner; None if it has `most` already and none gives way now."""
        if not self._make_room(owner, most):
            return None
        place = Place(owner, end)
        self._places.setdefault(owner, set()).add(place)
        return place

    def leave(self, place: Place) -> None:
        """Gives the place back, if no other connection has taken it."""
        places = self._places.get(place.owner, set())
        places.discard(place)
        if not places:
            self._places.pop(place.owner, None)
        self._left.set()
        self._left = anyio.Event()

    def _make_room(self, owner: object, most: int) -> bool:
        own = self._places.get(owner, set())
        if len(own) < most and sum(map(len, self._places.values())) < self._most:
            return True
        given_up = self._idle([own] if len(own) >= most else self._places.values())
        if given_up is None and len(own) < most:
            largest = max(self._places.values(), key=len)
            given_up = min(largest, key=_since) if len(largest) >= len(own) + 2 else None
        if given_up is None:
            return False
        self.leave(given_up)
        given_up.end()
        return True

    def _idle(self, among: Iterable[set[Place]]) -> Place | None:
        """The place of the connection that is idle for the longest time, of the owner with the most connections."""
        settled = anyio.current_time() - SETTLED
        for places in sorted(among, key=len, reverse=True):
            if idle := [place for place in places if place.idle and place.since <= settled]:
                return min(idle, key=lambda place: (place.late, place.since))
        return None


def client_of(address: str) -> str:
    """What a client with this address counts as: of IPv6 its network of 64 bits, as one machine can use all of it."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if ip.version == 4:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((ip.packed[:8] + bytes(8), 64)))


def _since(place: Place) -> float:
    return place.since
