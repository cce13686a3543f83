"""Sandboxes, some of them warm: each is owned by one task, which makes it, keeps it, and ends it.

`plan` decides what happens next. Here is what carries it out: every event is noted, planned for and acted upon
without an await in between, so that nothing needs a lock; what takes time goes on in the owners.
"""

import itertools
import logging
import math
import statistics
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from ..backends.base import Backend, Sandbox
from ..backends.room import Room
from ..errors import CapacityReached, PoolTimeout, SandboxError, StartFailed, Unavailable
from ..policy import Policy
from ..results import PoolKey, PoolStatistics
from ..runs.interpreter import Interpreter
from ..sections import PoolLimits
from ..units import format_duration
from .leases import Lease, Owned, Request
from .plan import Key, Member, Opening, Plan, State, Waiter, Wanted, plan

WarmUp = Callable[[Sandbox, str], Awaitable[Interpreter]]
"""Starts the interpreter of a language in a sandbox, and returns once it answers."""

Attach = Callable[[Sandbox, str], AbstractAsyncContextManager[None]]
"""Gives a sandbox the network that its policy grants, for as long as a scope lasts, and the libraries that all have of
the language that it is for, before any code runs in it."""

WARM_UP = 60.0
"""Seconds for an interpreter to come up."""
_HEALTH = 10.0
"""Seconds for one that is up to answer."""
_FIRST_REST, _LONGEST_REST = 1.0, 60.0
"""Seconds without another try after a refill failed: twice as long each time."""
_REMEMBERED = 200
"""Waits that their median is taken of."""

_log = logging.getLogger(__name__)


class Pool:
    """Hands out sandboxes of one backend. Their owners live in the given group; `serve` is its clock."""

    def __init__(
        self, backend: Backend, limits: PoolLimits, warm_up: WarmUp, attach: Attach, owners: TaskGroup
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._warm_up = warm_up
        self._attach = attach
        self._owners = owners
        self._members: dict[int, Owned] = {}
        self._requests: dict[int, Request] = {}
        self._wanted: dict[Key, Wanted] = {}
        self._rests: dict[Key, float] = {}
        """How long each key rests after its next failure, where the last attempt failed."""
        self._ids = itertools.count(1)
        self._look_again = math.inf
        self._sooner = anyio.Event()
        self._moved = anyio.Event()
        """Set, and replaced, at each event."""
        self._closed = False
        self._hits = self._misses = self._opened = self._ended = self._failed = 0
        self._last_error = ""
        self._waits: deque[float] = deque(maxlen=_REMEMBERED)

    async def acquire(self, language: str, policy: Policy, *, warm: bool = True) -> Lease:
        """A sandbox that nobody used, for work in a language; `warm=False` leaves those with an interpreter to others.

        Raises what the backend raises when it cannot be made, and `PoolTimeout` or `CapacityReached`, as the profile
        says, when all sandboxes are in use.
        """
        # What an image is called, and whether there are any, is known once an engine is chosen.
        backend = await self._backend.chosen()
        key = Key(language if warm else "", backend.image_of(language), policy)
        request = Request(Waiter(next(self._ids), key), anyio.current_time())
        while True:
            owned = await self._wait(request)
            # A warm one may have ended while the caller was on its way back here; another is as good.
            if owned.usable or owned.interpreter is None:
                break
            self._close_one(owned)
            request = Request(request.waiter, request.since)
        self._hits += owned.interpreter is not None
        self._misses += owned.interpreter is None
        self._waits.append(anyio.current_time() - request.since)
        return Lease(owned, self._release)

    @property
    def room(self) -> Room:
        """What this machine has least of for sandboxes."""
        return self._backend.tightest

    @property
    def _most(self) -> tuple[int, str]:
        """How many sandboxes there may be, and what allows more."""
        room = self.room
        if room.sandboxes < self._limits.max:
            return room.sandboxes, f"make room for more on the server: {room.step}"
        return self._limits.max, "raise pool.max in the profile"

    def keep_warm(self, language: str, policy: Policy) -> None:
        """From now on there are warm sandboxes of a language, as many as the profile says."""
        key = Key(language, self._backend.image_of(language), policy)
        if language in self._limits.languages and key not in self._wanted and not self._closed:
            self._wanted[key] = Wanted(self._limits.min)
            self._step()

    async def serve(self) -> None:
        """Looks again whenever time alone makes a difference."""
        while True:
            self._sooner = anyio.Event()
            with anyio.CancelScope(deadline=self._look_again) as waiting:
                await self._sooner.wait()
            if waiting.cancelled_caught:
                self._step()

    def close(self) -> None:
        """Lets every sandbox go, and makes no more."""
        self._closed = True
        self._wanted.clear()
        for request in list(self._requests.values()):
            self._answer(request, error=Unavailable("the server is ending; try again when it is back"))
        for owned in list(self._members.values()):
            self._close_one(owned)

    def statistics(self) -> PoolStatistics:
        """What there is now, and what there was so far."""
        members = [owned.member for owned in self._members.values()]
        states: dict[tuple[str, str], list[State]] = {(key.language, key.image): [] for key in self._wanted}
        for member in members:
            states.setdefault((member.key.language, member.key.image), []).append(member.state)
        return PoolStatistics(
            *_counts([member.state for member in members]),
            keys=tuple(PoolKey(*_counts(found), *key) for key, found in states.items()),
            max=self._most[0],
            waiting=len(self._requests),
            hits=self._hits,
            misses=self._misses,
            opened=self._opened,
            closed=self._ended,
            failed=self._failed,
            last_error=self._last_error,
            acquire_ms=round(statistics.median(self._waits) * 1000, 3) if self._waits else None,
        )

    async def until(self, condition: Callable[[PoolStatistics], bool]) -> None:
        """Returns once the statistics meet a condition, such as that all is warm."""
        while not condition(self.statistics()):
            await self._moved.wait()

    async def _wait(self, request: Request) -> Owned:
        if self._closed:
            raise Unavailable("the server is ending; try again when it is back")
        self._requests[request.waiter.id] = request
        self._step()
        try:
            with request.scope:
                await request.answered.wait()
        except BaseException:
            self._withdraw(request)
            raise
        if request.error is not None:
            raise request.error
        if request.owned is None:
            self._withdraw(request)
            waited = format_duration(self._limits.acquire_timeout)
            most, step = self._most
            raise PoolTimeout(
                f"all {most} sandboxes are in use and none became free within {waited}; "
                f"close a session and try again, or {step}",
                most,
                self._limits.acquire_timeout,
            )
        return request.owned

    def _withdraw(self, request: Request) -> None:
        """Takes a request back; a sandbox that it was handed and never saw goes to the next one."""
        self._requests.pop(request.waiter.id, None)
        owned = request.owned
        if owned is not None and owned.member.state is State.LEASED:
            self._become(owned, State.OPENED if owned.interpreter is None else State.WARM)
            owned.told.set()
        self._step()

    def _release(self, owned: Owned) -> None:
        self._close_one(owned)
        self._step()

    def _step(self) -> None:
        """Finds out what to do now, and has it done."""
        self._moved.set()
        self._moved = anyio.Event()
        if self._closed:
            return
        for owned in list(self._members.values()):
            if owned.member.state is State.WARM and not owned.usable:
                self._note(SandboxError(f"a warm sandbox of {owned.member.key.language} ended before it was used"))
                self._close_one(owned)
        members = [owned.member for owned in self._members.values()]
        waiters = [request.waiter for request in self._requests.values()]
        most, _ = self._most
        limits = self._limits if most == self._limits.max else self._limits.model_copy(update={"max": most})
        self._act(plan(members, waiters, self._wanted, limits, anyio.current_time()))

    def _act(self, plan: Plan) -> None:
        for member, waiter in plan.hand:
            self._become(self._members[member], State.LEASED)
            self._answer(self._requests[waiter], owned=self._members[member])
        for member in plan.close:
            self._close_one(self._members[member])
        for member in plan.check:
            self._become(self._members[member], State.CHECKING)
            self._members[member].told.set()
        for opening in plan.open:
            self._open(opening)
        for waiter in plan.refuse:
            most, step = self._most
            full = f"all {most} sandboxes are in use; close a session, or {step}"
            self._answer(self._requests[waiter], error=CapacityReached(full, most))
        for request in self._requests.values():
            blocked = request.waiter.id in plan.blocked
            # What is on its way is waited for as long as the engine takes, which has limits of its own.
            deadline = request.since + self._limits.acquire_timeout if blocked else math.inf
            if request.scope.deadline != deadline:
                request.scope.deadline = deadline
        if plan.look_again < self._look_again:
            self._sooner.set()
        self._look_again = plan.look_again

    def _open(self, opening: Opening) -> None:
        member = Member(next(self._ids), opening.key, State.WARMING, waiter=opening.waiter, temporary=opening.temporary)
        owned = Owned(member)
        self._members[member.id] = owned
        self._owners.start_soon(self._own, owned)

    def _answer(self, request: Request, *, owned: Owned | None = None, error: Exception | None = None) -> None:
        del self._requests[request.waiter.id]
        request.owned, request.error = owned, error
        request.answered.set()

    def _become(self, owned: Owned, state: State) -> None:
        owned.member = replace(owned.member, state=state)

    def _close_one(self, owned: Owned) -> None:
        self._become(owned, State.CLOSING)
        owned.scope.cancel()

    async def _own(self, owned: Owned) -> None:
        """The life of one sandbox."""
        key = owned.member.key
        try:
            with owned.scope:
                async with self._backend.sandbox(key.policy, key.image) as sandbox, self._attach(sandbox, key.language):
                    owned.sandbox = sandbox
                    self._opened += 1
                    self._become(owned, State.OPENED)
                    self._step()
                    while True:
                        await self._go_on(owned, sandbox)
        except Exception as error:
            self._fail(owned, error)
        finally:
            del self._members[owned.member.id]
            self._ended += owned.sandbox is not None
            self._step()

    async def _go_on(self, owned: Owned, sandbox: Sandbox) -> None:
        if owned.member.state is State.OPENED:
            self._become(owned, State.WARMING)
            owned.interpreter = await self._warm(sandbox, owned.member.key.language)
            self._rests.pop(owned.member.key, None)
            now = anyio.current_time()
            owned.member = replace(owned.member, state=State.WARM, warm_since=now, checked_at=now)
            self._step()
        elif owned.member.state is State.CHECKING:
            assert owned.interpreter is not None  # it was warm
            await owned.interpreter.check(_HEALTH)
            owned.member = replace(owned.member, state=State.WARM, checked_at=anyio.current_time())
            self._step()
        else:
            owned.told = anyio.Event()
            await owned.told.wait()

    async def _warm(self, sandbox: Sandbox, language: str) -> Interpreter:
        # Its own check ends it earlier; this is for what else there is to a start.
        with anyio.move_on_after(2 * WARM_UP):
            return await self._warm_up(sandbox, language)
        raise StartFailed(f"the interpreter of {language} did not come up within {2 * WARM_UP:g} s")

    def _fail(self, owned: Owned, error: Exception) -> None:
        """A sandbox could not be made, or warmed, or answered no more: who asked for it is told, or it is put off."""
        self._note(error)
        key, request = owned.member.key, self._requests.get(owned.member.waiter or 0)
        if owned.sandbox is None and request is not None:
            self._answer(request, error=error)
        elif owned.member.state is State.WARMING and key in self._wanted:
            rest = self._rests.get(key, _FIRST_REST)
            self._rests[key] = min(2 * rest, _LONGEST_REST)
            self._wanted[key] = replace(self._wanted[key], not_before=anyio.current_time() + rest)

    def _note(self, error: Exception) -> None:
        self._failed += 1
        self._last_error = str(error) or type(error).__name__
        if not isinstance(error, SandboxError):
            _log.error("a sandbox of the pool failed", exc_info=error)


def _counts(states: list[State]) -> tuple[int, int, int, int]:
    """How many are warm, warming, leased and closing."""
    warm = states.count(State.WARM) + states.count(State.CHECKING)
    leased, closing = states.count(State.LEASED), states.count(State.CLOSING)
    return warm, len(states) - warm - leased - closing, leased, closing
