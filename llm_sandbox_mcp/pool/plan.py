"""What a pool does next: a pure function of its sandboxes, the waiting requests, and the time."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ..backends.base import Layer
from ..base.policy import Policy
from ..profile.sections import PoolLimits

_REFILLS = 1
"""Sandboxes warmed at the same time without a request for them: more would take processors from running code."""
_QUIET = 0.2
"""Seconds without a request until a warm sandbox begins to import modules: a request that comes meanwhile cannot have
it, and in a rush of requests every processor is needed for code that runs."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a sandbox can be used for. It serves only requests with an equal key, so never a stricter policy."""

    language: str
    """The language whose interpreter is in the sandbox; empty for work that needs no interpreter."""
    image: str
    policy: Policy
    start: bool = False
    """Whether it is for a session that starts from a saved one, which is opened in it before it is warm."""
    layer: Layer | None = None
    """The files that it starts with, if they are not empty folders."""


class State(Enum):
    """The state of a sandbox in the pool."""

    WARMING = auto()
    """The engine is making the sandbox, or its interpreter is starting."""
    OPENED = auto()
    """Just made. A waiting request gets it now and starts the interpreter itself, which takes the same time."""
    WARM = auto()
    LOADING = auto()
    """Warm; its interpreter is importing the modules that most code imports, for as long as that takes."""
    CHECKING = auto()
    """Warm; the pool is checking whether it still answers."""
    LEASED = auto()
    CLOSING = auto()


@dataclass(frozen=True, slots=True)
class Member:
    """One sandbox of the pool."""

    id: int
    key: Key
    state: State
    warm_since: float = 0.0
    checked_at: float = 0.0
    """When it became warm, and when it answered last; in seconds of the pool's clock."""
    waiter: int | None = None
    """The request that it was opened for, which gets an error of the engine; None for a refill."""
    temporary: bool = False
    """Whether it exceeds the limit, for a request that would otherwise have to wait."""
    unloaded: bool = False
    """Whether its interpreter has modules to import while it waits."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """A request without a sandbox; ids count up, so the lowest id came first."""

    id: int
    key: Key


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many sandboxes of one key to keep warm; after failures, `not_before` is the time of the next attempt."""

    minimum: int
    not_before: float = -math.inf


@dataclass(frozen=True, slots=True)
class Opening:
    """A sandbox to open."""

    key: Key
    waiter: int | None = None
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, with ids of members and waiters. Once it is done, planning again at the same time is empty."""

    hand: tuple[tuple[int, int], ...]
    """Pairs of a member and the waiter that gets it."""
    open: tuple[Opening, ...]
    close: tuple[int, ...]
    check: tuple[int, ...]
    load: tuple[int, ...]
    blocked: frozenset[int]
    """Waiters for whom no sandbox is being made, since as many as allowed exist already."""
    refuse: tuple[int, ...]
    """The blocked waiters that get an error immediately."""
    look_again: float
    """When the plan changes without an event; infinity if never."""


def plan(
    members: Collection[Member],
    waiting: Iterable[Waiter],
    wanted: Mapping[Key, Wanted],
    limits: PoolLimits,
    now: float,
    asked_at: float = -math.inf,
) -> Plan:
    """Serves requests first come, first served; keeps the other sandboxes warm and checked, and limits their number.

    `asked_at` is when the last request came, served or not.
    """
    draft = _Draft(members, wanted, limits, now)
    draft.retire()
    waiters = sorted(waiting, key=lambda one: one.id)
    for place, waiter in enumerate(waiters):
        if draft.exhausted:
            # Thousands may wait: if nothing is left for any of them, they are not examined one by one.
            draft.blocked += [one.id for one in waiters[place:]]
            break
        draft.serve(waiter)
    draft.trim()
    draft.refill()
    draft.load(asked_at)
    draft.check()
    return Plan(
        hand=tuple(draft.handed),
        open=tuple(draft.opened),
        close=tuple(draft.closed),
        check=tuple(draft.checked),
        load=tuple(draft.loaded),
        blocked=frozenset(draft.blocked),
        refuse=tuple(draft.refused),
        look_again=draft.look_again,
    )


class _Draft:
    """A plan that is being made. `_idle` has the members that are not in use and not assigned to a request so far."""

    def __init__(
        self, members: Collection[Member], wanted: Mapping[Key, Wanted], limits: PoolLimits, now: float
    ) -> None:
        counted = [member for member in members if not member.temporary]
        self._free = limits.max - len(counted)
        self._leaving = sum(member.state is State.CLOSING for member in counted)
        taken = (State.LEASED, State.CLOSING)
        self._idle: dict[Key, list[Member]] = defaultdict(list)
        for member in sorted(members, key=lambda one: (one.warm_since, one.id)):
            if member.state not in taken:
                self._idle[member.key].append(member)
        self._wanted = wanted
        self._limits = limits
        self._now = now
        self.handed: list[tuple[int, int]] = []
        self.opened: list[Opening] = []
        self.closed: list[int] = []
        self.checked: list[int] = []
        self.loaded: list[int] = []
        self.blocked: list[int] = []
        self.refused: list[int] = []
        self.look_again = math.inf

    @property
    def exhausted(self) -> bool:
        """Whether every further request, for any key, can only wait."""
        nothing_left = self._free <= 0 and self._leaving == 0 and not any(self._idle.values())
        return nothing_left and self._limits.exhaustion == "wait"

    def retire(self) -> None:
        """Closes warm sandboxes that are too old, before a request gets them."""
        for member in self._all_idle(State.WARM):
            if self._due(member.warm_since + self._limits.lifetime):
                self._close(member)

    def serve(self, waiter: Waiter) -> None:
        """Finds a sandbox for one request: a ready one, one that is being made, a new one, or room for a new one."""
        ready = self._of(waiter.key, State.WARM) or self._of(waiter.key, State.OPENED)
        coming = self._of(waiter.key, State.CHECKING) or self._of(waiter.key, State.WARMING)
        if ready:
            # The one that became warm last; the older ones can then reach their idle timeout.
            best = max(ready, key=lambda one: (not one.unloaded, one.warm_since, one.id))
            self.handed.append((self._take(best).id, waiter.id))
        elif coming:
            self._take(coming[0])
        elif self._free > 0:
            self._free -= 1
            self.opened.append(Opening(waiter.key, waiter.id))
        else:
            self._block(waiter)

    def trim(self) -> None:
        """Closes unneeded sandboxes: those opened only for a request that is gone, and surplus warm ones in time."""
        for key, idle in list(self._idle.items()):
            minimum = self._minimum(key)
            for member in [one for one in idle if one.temporary or not minimum]:
                self._close(member)
            surplus = len(idle) - minimum
            for member in self._of(key, State.WARM)[: max(0, surplus)]:
                if self._due(member.warm_since + self._limits.idle_timeout):
                    self._close(member)

    def refill(self) -> None:
        """Opens missing sandboxes of each wanted key, with the capacity that the requests have left."""
        room = min(self._free, _REFILLS - len(self._all_idle(State.WARMING, State.OPENED)))
        for key, wanted in self._wanted.items():
            missing = min(room, wanted.minimum - len(self._idle[key]))
            if missing > 0 and self._due(wanted.not_before):
                room -= missing
                self.opened += [Opening(key)] * missing

    def load(self, asked_at: float) -> None:
        """Lets one sandbox import modules, once nobody has asked for any for a moment: it cannot be used meanwhile."""
        unloaded = [member for member in self._all_idle(State.WARM) if member.unloaded]
        if unloaded and not self._all_idle(State.LOADING) and self._due(asked_at + _QUIET):
            self.loaded.append(unloaded[0].id)

    def check(self) -> None:
        """Checks the warm sandboxes that were not checked for `health_interval`."""
        for member in self._all_idle(State.WARM):
            if member.id not in self.loaded and self._due(member.checked_at + self._limits.health_interval):
                self.checked.append(member.id)

    def _block(self, waiter: Waiter) -> None:
        """For a full pool: waits for a closing sandbox, closes an idle one, or does what the profile says."""
        if self._leaving == 0 and (victim := self._victim()) is not None:
            self._close(victim)
        if self._leaving > 0:
            self._leaving -= 1
        elif self._limits.exhaustion == "temporary":
            self.opened.append(Opening(waiter.key, waiter.id, temporary=True))
            return
        elif self._limits.exhaustion == "fail_fast":
            self.refused.append(waiter.id)
        self.blocked.append(waiter.id)

    def _victim(self) -> Member | None:
        """The idle member that is needed least: the one that has been warm longest, else one that is being made."""
        warm, others = (State.WARM, State.LOADING, State.CHECKING), (State.OPENED, State.WARMING)
        candidates = [one for one in self._all_idle(*warm) or self._all_idle(*others) if not one.temporary]
        return min(candidates, key=lambda one: (one.warm_since, one.id), default=None)

    def _all_idle(self, *states: State) -> list[Member]:
        return [member for idle in self._idle.values() for member in idle if member.state in states]

    def _of(self, key: Key, state: State) -> list[Member]:
        return [member for member in self._idle[key] if member.state is state]

    def _take(self, member: Member) -> Member:
        self._idle[member.key].remove(member)
        return member

    def _close(self, member: Member) -> None:
        self.closed.append(self._take(member).id)
        self._leaving += not member.temporary

    def _minimum(self, key: Key) -> int:
        wanted = self._wanted.get(key)
        return wanted.minimum if wanted is not None else 0

    def _due(self, time: float) -> bool:
        """Whether the time has come; if not, the pool is planned again at that time."""
        if time <= self._now:
            return True
        self.look_again = min(self.look_again, time)
        return False
