"""Memory that HTTP requests share: whose turn it is, how much each gets, and which give way.

One client can have as much as it leaves to others, with bodies of usual size almost all; who has least is first. While
others wait, bodies that arrive slowly give way. Clients are told apart by their addresses, of IPv6 by the network.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

USUAL = 1 << 20
"""Bytes of a body that needs little room."""
PATIENCE = 8.0
"""Seconds to wait for room: less than a client can pause within a request."""
PAUSE = 1.0
"""Seconds after which a body of which nothing arrives gives way to others."""
START = 5.0
PACE = 1 << 20
"""A body also gives way if it has not so many bytes for each second after the first ones."""
_PARSED = ((b"[", 64), (b"{", 64), (b":", 96), (b",", 32))
"""Bytes that lists, objects and their elements take in addition once they are parsed: 4 MiB of `{},` become 100 MB."""
_TEXT, _WIDE = 2, 5
"""Copies of strings that parsing makes, and what they take if one character of them takes four bytes."""
_FOUR = re.compile(rb"[\xf0-\xff]")
"""The first byte of such a character, in UTF-8; or a larger one."""
_FULL = "the server has no room for the body now; send less at once, or try again in a few seconds"
_SLOW = "the body took too long to arrive while others waited; send it faster or less at once, or try again"


class Parsed:
    """How many bytes a body of JSON takes once it is parsed."""

    _size = 0
    _text = 0
    """Bytes inside of strings."""
    _wide = False
    """Whether strings can have characters that take four bytes; then all others take as many."""
    _in_string = False
    _escape = b""

    @property
    def size(self) -> int:
        return self._size + self._text * (_WIDE if self._wide else _TEXT)

    def add(self, part: bytes) -> None:
        """Counts a part, wherever the body is cut, in time that grows with its bytes."""
        text, self._escape = self._escape + part, b""
        if b"\\" in text:
            text = text.replace(b"\\\\", b"")
            self._escape = b"\\" if text.endswith(b"\\") else b""
            self._wide = self._wide or b"\\u" in text
            text = text.replace(b'\\"', b"")
        # Without what is escaped, each quotation mark begins or ends a string.
        pieces = text.split(b'"')
        # In UTF-16, which is JSON as well, these bytes can mean anything; in UTF-8, zeros are never allowed.
        unclear = b"\0" in part
        outside = part if unclear else b"".join(pieces[self._in_string :: 2])
        self._in_string ^= len(pieces) % 2 == 0
        self._wide = self._wide or unclear or not (part.isascii() or _FOUR.search(part) is None)
        self._text += len(part) if unclear else len(part) - len(outside)
        self._size += len(part) + sum(outside.count(sign) * more for sign, more in _PARSED)


@dataclass(eq=False, slots=True)
class Body:
    """The body of one request."""

    client: str
    scope: anyio.CancelScope
    """Of its request."""
    size: int = 0
    wanted: int = 0
    """Bytes that it has room for, and that it needs."""
    began: float = 0.0
    heard: float = 0.0
    """When it got room, and when a part of it arrived; in seconds of the loop's clock."""
    got: int = 0
    """Bytes that arrived."""
    parsed: Parsed = field(default_factory=Parsed)
    complete: bool = False
    needed: int = 0
    """Bytes that it needs while its message is handled."""
    answer: int = 0
    """Bytes of the answer, if they need room."""
    users: int = 0
    """The request, and handlers of its messages."""
    refused: str = ""
    """Why its request is refused, if it is."""
    has_room: anyio.Event = field(default_factory=anyio.Event)

    @property
    def due(self) -> float:
        """From when on it gives way to others; infinity once it is complete."""
        return math.inf if self.complete else min(self.heard + PAUSE, self.began + START + self.got / PACE)

    def refuse(self, why: str) -> None:
        """Ends its request."""
        self.refused = why
        self.scope.cancel()


class Room:
    """Shares the memory among bodies."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._of_client: Counter[str] = Counter()
        self._inside: set[Body] = set()
        self._waiting: dict[Body, None] = {}
        self._again: asyncio.TimerHandle | None = None

    async def grow(self, body: Body, size: int) -> None:
        """Waits until a body has so much room; after too long, refuses the request."""
        body.wanted, body.has_room = size, anyio.Event()
        self._waiting[body] = None
        self._share()
        with anyio.move_on_after(PATIENCE):
            await body.has_room.wait()
        if not body.has_room.is_set():
            body.refuse(_FULL)
            await anyio.lowlevel.checkpoint()

    def is_full_of(self, body: Body) -> bool:
        """Whether the client of a body has so much that even small bodies have to wait."""
        own = self._of_client[body.client] - body.size
        return own > 0 and own / 7 > self._left

    def shrink(self, body: Body, size: int) -> None:
        """Gives the rest of a body's room to others."""
        if size < body.size:
            self._resize(body, size)
            self._share()

    @contextmanager
    def use(self, body: Body) -> Iterator[None]:
        """While anybody uses a body, it keeps its room; who comes after all others left takes it without a wait."""
        body.users += 1
        if body.size < body.needed:  # a small one, whose request needs no room
            self._resize(body, body.needed)
        try:
            yield
        finally:
            body.users -= 1
            if not body.users:
                self._waiting.pop(body, None)
                self.shrink(body, 0)

    def _share(self) -> None:
        """Gives room to whoever is next; if there is too little, looks again when a body has to give way."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        while self._waiting:
            # What is complete comes first: it ends soonest. Bodies that arrive leave room to it: one client's take a
            # quarter at most, but for those of usual size, which give way like all others if they are slow.
            first = min(
                self._waiting,
                key=lambda body: (not body.complete, self._of_client[body.client], body.wanted > USUAL),
            )
            more = first.wanted - first.size
            while (self._of_client[first.client] + more) * _left_to_others(first) > self._left - more:
                worst = self._slowest()
                if worst is None:
                    return
                self._resize(worst, 0)
                worst.refuse(_SLOW)
            del self._waiting[first]
            if not first.size:
                first.began = first.heard = anyio.current_time()
            self._resize(first, first.wanted)
            first.has_room.set()

    def _slowest(self) -> Body | None:
        """The body that has to give way now, if any: of the client that has most, the one that is due longest."""
        arriving = [body for body in self._inside if not body.complete]
        slow = [body for body in arriving if body.due <= anyio.current_time()]
        if not slow:
            if arriving:
                self._again = asyncio.get_running_loop().call_at(min(body.due for body in arriving), self._share)
            return None
        return max(slow, key=lambda body: (self._of_client[body.client], -body.due))

    def _resize(self, body: Body, size: int) -> None:
        self._left -= size - body.size
        self._of_client[body.client] += size - body.size
        if not self._of_client[body.client]:
            del self._of_client[body.client]
        body.size = size
        if size:
            self._inside.add(body)
        else:
            self._inside.discard(body)


class Claim:
    """The room of one request."""

    def __init__(self, room: Room, body: Body) -> None:
        self._room = room
        self._body = body

    def kept(self) -> AbstractContextManager[None]:
        """Holds while a message of the request is in memory, also once the request has ended."""
        return self._room.use(self._body)

    async def take(self, size: int) -> None:
        """Waits for room for an answer of up to so many bytes; after too long, refuses the request."""
        self._body.complete = True
        self._body.answer = size
        await self._room.grow(self._body, size)

    def shrink(self, size: int) -> None:
        """Gives room back: the answer has only so many bytes."""
        self._body.answer = size
        self._room.shrink(self._body, size)


def _left_to_others(body: Body) -> float:
    """How much has to be left to others, for each byte that the client of a body has.

    Little for a body of usual size: on loopback and behind a proxy, all callers have one address.
    """
    if body.wanted <= USUAL:
        return 1 / 7
    return 1 if body.complete else 3
