"""What a pool does next: a pure function of what there is, who waits, and the time."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ..policy import Policy
from ..sections import PoolLimits

_REFILLS = 1
"""Sandboxes that are warmed at once with nobody waiting for them: more would take the processors from those who run."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a sandbox is good for. One serves a request of the equal key only, so never one of a stricter policy."""

    language: str
    """Whose interpreter is in it; empty for work that has no use for one."""
    image: str
    policy: Policy


class State(Enum):
    """Where a sandbox of the pool stands."""

    WARMING = auto()
    """The engine makes it, or its interpreter starts."""
    OPENED = auto()
    """Just made: who waits for it gets it now, and starts the interpreter; to wait for that here takes as long."""
    WARM = auto()
    CHECKING = auto()
    """Warm, and asked at this moment whether it still answers."""
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
    """When it was warm at first, and known to answer; seconds of the pool's clock."""
    waiter: int | None = None
    """The request that it was opened for, which the engine's error is for; nothing for a refill."""
    temporary: bool = False
    """Whether it is beyond the limit, for somebody who would have had to wait."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """A request without a sandbox; ids count up, so the lowest came first."""

    id: int
    key: Key


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many to keep warm of one key, and until when not to try, since the last attempts failed."""

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
    """What to do now, by ids of members and waiters. Once it is done, planning again at that time finds nothing."""

    hand: tuple[tuple[int, int], ...]
    """Each member that goes to a waiter, and the waiter."""
    open: tuple[Opening, ...]
    close: tuple[int, ...]
    check: tuple[int, ...]
    blocked: frozenset[int]
    """Waiters for whom nothing is on its way, since others hold all that there may be."""
    refuse: tuple[int, ...]
    """Those of them that are told so at once."""
    look_again: float
    """When time alone changes the plan; infinity for never."""


def plan(
    members: Collection[Member],
    waiting: Iterable[Waiter],
    wanted: Mapping[Key, Wanted],
    limits: PoolLimits,
    now: float,
) -> Plan:
    """Serves requests first come, first served; what they leave is kept warm, checked, and bounded."""
    draft = _Draft(members, wanted, limits, now)
    draft.retire()
    waiters = sorted(waiting, key=lambda one: one.id)
    for place, waiter in enumerate(waiters):
        if draft.exhausted:
            # Thousands may wait: none of them is looked at by itself where nothing is left for any of them.
            draft.blocked += [one.id for one in waiters[place:]]
            break
        draft.serve(waiter)
    draft.trim()
    draft.refill()
    draft.check()
    return Plan(
        hand=tuple(draft.handed),
        open=tuple(draft.opened),
        close=tuple(draft.closed),
        check=tuple(draft.checked),
        blocked=frozenset(draft.blocked),
        refuse=tuple(draft.refused),
        look_again=draft.look_again,
    )


class _Draft:
    """A plan in the making. `_idle` holds the members that nobody has, and that nobody is meant to get so far."""

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
        self.blocked: list[int] = []
        self.refused: list[int] = []
        self.look_again = math.inf

    @property
    def exhausted(self) -> bool:
        """Whether all that is left to do with a request, whatever it is for, is to let it wait."""
        nothing_left = self._free <= 0 and self._leaving == 0 and not any(self._idle.values())
        return nothing_left and self._limits.exhaustion == "wait"

    def retire(self) -> None:
        """Closes the warm ones that are too old, before anybody gets them."""
        for member in self._all_idle(State.WARM):
            if self._due(member.warm_since + self._limits.lifetime):
                self._close(member)

    def serve(self, waiter: Waiter) -> None:
        """Finds a sandbox for one request: one that is there, one that comes, a new one, or another's place."""
        there = self._of(waiter.key, State.WARM) or self._of(waiter.key, State.OPENED)
        coming = self._of(waiter.key, State.CHECKING) or self._of(waiter.key, State.WARMING)
        if there:
            # The last to become warm: the others are left to grow old and go.
            self.handed.append((self._take(there[-1]).id, waiter.id))
        elif coming:
            self._take(coming[0])
        elif self._free > 0:
            self._free -= 1
            self.opened.append(Opening(waiter.key, waiter.id))
        else:
            self._block(waiter)

    def trim(self) -> None:
        """Closes what nobody needs: what only a request was to get, and the warm ones beyond the minimum, in time."""
        for key, idle in list(self._idle.items()):
            minimum = self._minimum(key)
            for member in [one for one in idle if one.temporary or not minimum]:
                self._close(member)
            surplus = len(idle) - minimum
            for member in self._of(key, State.WARM)[: max(0, surplus)]:
                if self._due(member.warm_since + self._limits.idle_timeout):
                    self._close(member)

    def refill(self) -> None:
        """Opens what is missing of each wanted key, with what capacity the requests have left."""
        room = min(self._free, _REFILLS - len(self._all_idle(State.WARMING, State.OPENED)))
        for key, wanted in self._wanted.items():
            missing = min(room, wanted.minimum - len(self._idle[key]))
            if missing > 0 and self._due(wanted.not_before):
                room -= missing
                self.opened += [Opening(key)] * missing

    def check(self) -> None:
        """Asks the warm ones that were not asked for long."""
        for member in self._all_idle(State.WARM):
            if self._due(member.checked_at + self._limits.health_interval):
                self.checked.append(member.id)

    def _block(self, waiter: Waiter) -> None:
        """Where all places are taken: waits for one that is being left, or has one left, or goes by the profile."""
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
        """The idle member that is missed least: a warm one that nobody needed for longest, else one in the making."""
        warm, others = (State.WARM, State.CHECKING), (State.OPENED, State.WARMING)
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
        """Whether the time has come; the pool is looked at again when it has not."""
        if time <= self._now:
            return True
        self.look_again = min(self.look_again, time)
        return False
