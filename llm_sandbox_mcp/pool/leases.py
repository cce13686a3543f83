"""The state of one sandbox, and of one request for a sandbox, that the pool, the owner tasks and callers share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from ..backends.base import Sandbox
from ..base.messages import Note
from ..runs.interpreter import Interpreter
from ..runs.interpreters import Interpreters
from .plan import Member, Waiter


@dataclass(frozen=True, slots=True)
class Started:
    """A saved session that was opened in a sandbox."""

    runs: int
    """How many it had."""
    notes: Sequence[Note]
    """What there is to tell of it."""


@dataclass(eq=False, slots=True)
class Owned:
    """A member of the pool, with the things that its owner task holds."""

    member: Member
    interpreters: Interpreters | None = None
    """Those of its sandbox, once there is one."""
    started: Started | None = None
    """The saved session that was opened in it, if one was."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    changed: anyio.Event = field(default_factory=anyio.Event)
    """Set when another task has changed the state of the member."""

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, once it is made."""
        return self.interpreters.sandbox if self.interpreters is not None else None

    @property
    def interpreter(self) -> Interpreter | None:
        """The interpreter of the language that the sandbox is kept warm for, once it is started."""
        return self.interpreters.get(self.member.key.language) if self.interpreters is not None else None

    @property
    def usable(self) -> bool:
        """Whether neither the sandbox nor its interpreter has ended, as far as is known without a check."""
        interpreter_ended = self.interpreter is not None and not self.interpreter.running
        return self.sandbox is not None and self.sandbox.alive and not interpreter_ended


@dataclass(eq=False, slots=True)
class Request:
    """A caller that waits, and its answer: either a sandbox or an error."""

    waiter: Waiter
    since: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    answered: anyio.Event = field(default_factory=anyio.Event)
    owned: Owned | None = None
    error: Exception | None = None


class Lease:
    """Exclusive use of one sandbox until it is released, which destroys it: a used sandbox never serves anyone else."""

    def __init__(self, owned: Owned, release: Callable[[Owned], None]) -> None:
        assert owned.interpreters is not None  # it is opened before it is leased
        self.sandbox = owned.interpreters.sandbox
        self.interpreters = owned.interpreters
        """Those that run already: none, or that of the requested language, and with a saved session all of its."""
        self.started = owned.started
        """The saved session that was opened in it, if one was."""
        self._owned = owned
        self._release = release

    def release(self) -> None:
        """Gives the sandbox back; it is destroyed in the background, so the caller does not wait."""
        self._release(self._owned)
