"""One use of a session at a time: who uses it, who waits, who comes last, and what is broken off for others."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

from ..base.errors import Unavailable, UnknownSession, quoted
from ..base.messages import Step

_SPARE = 0.02
"""Seconds that a use waits at most for what the server does in spare time, which is broken off then."""


class InTurn:
    """What allows one use at a time, while others wait for their turn."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.uses = 0
        """How often it was used, for a run, a copy or anything else."""
        self.used_at = anyio.current_time()
        self.closed = False
        self.ending = False
        """Whether the server is ending, so that nobody else gets its turn."""
        self._users = 0
        self._turn = anyio.Lock(fast_acquire=True)
        self._take_back: Callable[[], None] | None = None
        """Ends the use that has the turn."""
        self._spare: anyio.CancelScope | None = None
        """What the server does in spare time while it has the turn."""

    @property
    def busy(self) -> bool:
        """Whether a caller uses it or waits for it."""
        return self._users > 0

    @property
    def alone(self) -> bool:
        """Whether the only one who uses it or waits for it is who asks."""
        return self._users == 1

    def join(self) -> None:
        """Counts somebody who uses it, or will do so at once: a session in use is not closed to make room."""
        self._users += 1

    def leave(self) -> None:
        """Counts one user less."""
        self._users -= 1
        self.used_at = anyio.current_time()

    @asynccontextmanager
    async def exclusive(
        self, take_back: Callable[[], None] | None = None, *, last: bool = False
    ) -> AsyncIterator[None]:
        """Waits for the turn and holds it; raises `UnknownSession` if the session was closed meanwhile.

        `take_back` ends the use if `take_back_turn` is called. Once the server is ending, only the `last` use gets the
        turn; others raise `Unavailable`.
        """
        self.join()
        self.uses += 1
        self._hurry()
        try:
            async with self._turn:
                if self.closed:
                    raise unknown(self.id)
                if self.ending and not last:
                    raise ending()
                self._take_back = take_back
                try:
                    yield
                finally:
                    self._take_back = None
        finally:
            self.leave()

    @asynccontextmanager
    async def spare(self, scope: anyio.CancelScope) -> AsyncIterator[None]:
        """Holds the turn for what the server does in spare time, in a scope: it ends soon once somebody waits.

        This is no use, and when it was used last does not change.
        """
        async with self._turn:
            if self.closed or self.ending:
                raise unknown(self.id)
            self._spare = scope
            if self.busy:
                self._hurry()
            try:
                yield
            finally:
                self._spare = None

    @contextmanager
    def aside(self, seconds: float) -> Iterator[anyio.CancelScope]:
        """A scope for what the server does in the sandbox after code, while it has the turn; `take_back_turn` ends
        it."""
        before = self._take_back
        with anyio.move_on_after(seconds) as scope:
            self._take_back = scope.cancel
            try:
                yield scope
            finally:
                self._take_back = before

    def take_back_turn(self) -> bool:
        """Ends the use that has the turn; returns false if there is none that can be ended."""
        if self._take_back is None:
            return False
        self._take_back()
        return True

    def _hurry(self) -> None:
        if self._spare is not None:
            self._spare.deadline = min(self._spare.deadline, anyio.current_time() + _SPARE)


def ending() -> Unavailable:
    """What a use gets while the server is ending."""
    return Unavailable("the server is ending", "try again when it is back")


def unknown(session_id: str, why: str = "it was closed, or expired") -> UnknownSession:
    """What a use gets of a session that is not open."""
    cause = f"session {quoted(session_id, 40)} is not open: {why}"
    return UnknownSession(cause, Step.OPEN_SESSION, session=session_id)
