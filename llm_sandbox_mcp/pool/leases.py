"""What the pool, its sandboxes' owners and its callers share of one sandbox, and of one request for one."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from ..backends.base import Sandbox
from ..runs.interpreter import Interpreter
from .plan import Member, Waiter


@dataclass(eq=False, slots=True)
class Owned:
    """A member of the pool with what its task holds."""

    member: Member
    sandbox: Sandbox | None = None
    interpreter: Interpreter | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    told: anyio.Event = field(default_factory=anyio.Event)
    """Set when somebody else changed its state."""

    @property
    def usable(self) -> bool:
        """Whether neither the sandbox nor its interpreter has ended, as far as is known without asking."""
        interpreter_ended = self.interpreter is not None and not self.interpreter.running
        return self.sandbox is not None and self.sandbox.alive and not interpreter_ended


@dataclass(eq=False, slots=True)
class Request:
    """A caller that waits, and what it gets in the end: one of the two."""

    waiter: Waiter
    since: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    answered: anyio.Event = field(default_factory=anyio.Event)
    owned: Owned | None = None
    error: Exception | None = None


class Lease:
    """Exclusive use of one sandbox until it is released, which destroys it: a used sandbox never serves anyone else."""

    def __init__(self, owned: Owned, release: Callable[[Owned], None]) -> None:
        assert owned.sandbox is not None  # it is leased after it was opened
        self.sandbox = owned.sandbox
        self.interpreter = owned.interpreter
        """The interpreter of the language that was asked for, where it is up already."""
        self._owned = owned
        self._release = release

    def release(self) -> None:
        """Lets the sandbox go; it is destroyed beside the caller, who need not wait."""
        self._release(self._owned)
