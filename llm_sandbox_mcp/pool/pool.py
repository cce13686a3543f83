"""The pool of sandboxes, some of them warm: one task owns each sandbox, and makes it, keeps it, and ends it.

`plan` decides what happens next, and this module does it: every event is recorded, planned and handled without an await
in between, so nothing needs a lock. Work that takes time runs in the owner tasks.
"""

import itertools
import logging
import math
import statistics
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from ..backends.base import Backend, Layer, Sandbox, Zygote
from ..backends.room import Room
from ..base.errors import CapacityReached, PoolTimeout, SandboxError, StartFailed, Unavailable
from ..base.policy import Policy
from ..base.results import OnProgress, PoolKey, PoolStatistics
from ..base.units import format_duration
from ..profile.sections import PoolLimits
from ..runs.interpreter import Interpreter
from ..runs.interpreters import Interpreters
from .demand import Demand
from .leases import Lease, Owned, Request, Started
from .plan import Key, Member, Opening, Plan, State, Waiter, Wanted, plan
from .preloads import Preloads

WarmUp = Callable[[Interpreters, str], Awaitable[Interpreter]]
"""Starts the interpreter of a language, and returns it once it answers."""

Attach = Callable[[Sandbox, str], AbstractAsyncContextManager[None]]
"""Gives a sandbox the network that its policy grants while a scope lasts. Before any code runs in it, it also gets the
libraries that all sandboxes of its language have."""

Start = Callable[[Interpreters, str, OnProgress | None], Awaitable[Started]]
"""Opens the saved session from which those in a language start, in a sandbox."""

WARM_UP = 60.0
"""Seconds for an interpreter to start."""
_HEALTH = 10.0
"""Seconds for a running interpreter to answer a check."""
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 60.0
"""Seconds until the next attempt after a failed refill: twice as long each time, up to the second value."""
_PAUSE = 0.03
"""Seconds from a request to the next refill, which most first runs take to end; requests meanwhile do not extend it."""
_REMEMBERED = 200
"""The number of last waiting times from which the median is computed."""

_log = logging.getLogger(__name__)


class Pool:
    """Hands out sandboxes of one backend. The owner tasks run in the given group; `serve` acts when time has passed."""

    def __init__(
        self,
        backend: Backend,
        limits: PoolLimits,
        warm_up: WarmUp,
        attach: Attach,
        owners: TaskGroup,
        preloads: Preloads | None = None,
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._warm_up = warm_up
        self._attach = attach
        self._owners = owners
        self._preloads = preloads or Preloads({})
        self.start: Start | None = None
        self.starting: Collection[str] = ()
        """The languages whose sessions start from a saved one, with `start`."""
        self.layers: dict[tuple[str, Policy], Layer] = {}
        """The files of these, for the sandboxes of a language and policy that need no copy of their own."""
        self._members: dict[int, Owned] = {}
        self._requests: dict[int, Request] = {}
        self._wanted: dict[Key, Wanted] = {}
        self._demands: dict[Key, Demand] = {}
        self._backoffs: dict[Key, float] = {}
        """For each key whose last attempt failed: how long to pause after the next failure."""
        self._ids = itertools.count(1)
        self._asked_at = -math.inf
        """When the last request came."""
        self._look_again = math.inf
        self._earlier = anyio.Event()
        self._changed = anyio.Event()
        """Set and replaced at each event."""
        self._closed = False
        self._hits = self._misses = self._opened = self._ended = self._failed = 0
        self._last_error = ""
        self._waits: deque[float] = deque(maxlen=_REMEMBERED)

    async def acquire(
        self, language: str, policy: Policy, *, warm: bool = True, empty: bool = False, layer: Layer | None = None
    ) -> Lease:
        """An unused sandbox for work in a language; with `warm=False`, one without an interpreter.

        With `empty`, no saved session was opened in it; with a layer, it has its files, where that is possible.

        Raises the error of the backend if it cannot be made, and `PoolTimeout` or `CapacityReached`, depending on the
        profile, if all sandboxes are in use.
        """
        # Whether there are images, and their names, is known only after an engine is chosen.
        backend = await self._backend.chosen()
        starts = warm and not empty and language in self.starting
        key = Key(language if warm else "", backend.image_of(language), policy, starts, layer)
        self._asked_at = anyio.current_time()
        if key in self._wanted:
            self._demands[key].note(self._asked_at)
            self._pause(key)
        request = Request(Waiter(next(self._ids), key), self._asked_at)
        while True:
            owned = await self._wait(request)
            # A warm sandbox may have ended before this task resumed; then another one is requested.
            if owned.usable or owned.interpreter is None:
                break
            self._close_one(owned)
            request = Request(request.waiter, request.since)
        self._hits += owned.interpreter is not None
        self._misses += owned.interpreter is None
        self._waits.append(anyio.current_time() - request.since)
        return Lease(owned, self._release)

    async def begin(self, lease: Lease, language: str, on_progress: OnProgress | None) -> Started | None:
        """Opens the saved session that those in a language start from, if there is one, in a sandbox that is leased."""
        if self.start is None or language not in self.starting:
            return None
        return await self.start(lease.interpreters, language, on_progress)

    @property
    def room(self) -> Room:
        """The resource of this machine that has room for the fewest sandboxes."""
        return self._backend.bottleneck

    @property
    def most(self) -> tuple[int, str]:
        """The maximum number of sandboxes, and the step that raises it; those that exceed `pool.max` for a request do
        not count."""
        room = self.room
        if room.sandboxes < self._limits.max or self._limits.exhaustion == "temporary":
            return room.sandboxes, f"make room for more on the server: {room.step}"
        return self._most

    @property
    def _most(self) -> tuple[int, str]:
        """The number of sandboxes beyond which requests wait, and the step that raises it."""
        room = self.room
        if room.sandboxes < self._limits.max:
            return room.sandboxes, f"make room for more on the server: {room.step}"
        return self._limits.max, "raise pool.max in the profile"

    def keep_warm(self, language: str, policy: Policy) -> None:
        """From now on, keeps as many sandboxes of a language warm as the profile says."""
        key = Key(language, self._backend.image_of(language), policy, language in self.starting)
        if language in self._limits.languages and key not in self._wanted and not self._closed:
            self._wanted[key], self._demands[key] = Wanted(self._limits.min), Demand()
            self._step()

    def renew(self, language: str) -> None:
        """Closes what waits in a language, since the session that those in it start from is another one now."""
        for owned in list(self._members.values()):
            key = owned.member.key
            if key.start and key.language == language and owned.member.state not in (State.LEASED, State.CLOSING):
                self._close_one(owned)
        for key, wanted in self._wanted.items():
            if key.language == language:
                self._wanted[key] = Wanted(wanted.minimum)
        self._step()

    async def serve(self) -> None:
        """Plans again whenever the passing of time changes the plan."""
        while True:
            self._earlier = anyio.Event()
            with anyio.CancelScope(deadline=self._look_again) as waiting:
                await self._earlier.wait()
            if waiting.cancelled_caught:
                self._step()

    def close(self) -> None:
        """Closes every sandbox, and makes no more."""
        self._closed = True
        self._wanted.clear()
        for request in list(self._requests.values()):
            self._answer(request, error=Unavailable("the server is shutting down", "try again when it is back"))
        for owned in list(self._members.values()):
            self._close_one(owned)

    def statistics(self) -> PoolStatistics:
        """The present sandboxes, and the counts so far."""
        members = [owned.member for owned in self._members.values()]
        states: dict[tuple[str, str], list[State]] = {(key.language, key.image): [] for key in self._wanted}
        for member in members:
            states.setdefault((member.key.language, member.key.image), []).append(member.state)
        return PoolStatistics(
            *_counts([member.state for member in members]),
            keys=tuple(PoolKey(*_counts(found), *key, self._preloads.of(*key)) for key, found in states.items()),
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
        """Returns once the statistics meet a condition, such as that all sandboxes are warm."""
        while not condition(self.statistics()):
            await self._changed.wait()

    async def _wait(self, request: Request) -> Owned:
        if self._closed:
            raise Unavailable("the server is shutting down", "try again when it is back")
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
                f"all {most} sandboxes are in use and none became free within {waited}",
                f"close a session and try again, or {step}",
                most=most,
                waited=self._limits.acquire_timeout,
            )
        return request.owned

    def _withdraw(self, request: Request) -> None:
        """Takes a request back; if a sandbox was assigned to it already, that goes to the next request."""
        self._requests.pop(request.waiter.id, None)
        owned = request.owned
        if owned is not None and owned.member.state is State.LEASED:
            self._set_state(owned, State.OPENED if owned.interpreter is None else State.WARM)
            owned.changed.set()
        self._step()

    def _release(self, owned: Owned) -> None:
        self._close_one(owned)
        self._step()

    def _step(self) -> None:
        """Plans what to do now, and does it."""
        self._changed.set()
        self._changed = anyio.Event()
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
        now = anyio.current_time()
        wanted = {key: replace(one, minimum=self._stock(key, now)) for key, one in self._wanted.items()}
        self._act(plan(members, waiters, wanted, limits, now, self._asked_at))

    def _pause(self, key: Key) -> None:
        """Delays the next refill: making a sandbox takes processors from the code that was just asked for."""
        wanted = self._wanted[key]
        if wanted.not_before <= self._asked_at:
            self._wanted[key] = replace(wanted, not_before=self._asked_at + _PAUSE)

    def _stock(self, key: Key, now: float) -> int:
        """How many to keep warm: the minimum, and of forks, which cost little, as many as are asked for at once."""
        minimum = self._wanted[key].minimum
        if not minimum or self._zygote(key) is None:
            return minimum
        return max(minimum, min(self._limits.stock, self._demands[key].most(now)))

    def _act(self, plan: Plan) -> None:
        for member, waiter in plan.hand:
            self._set_state(self._members[member], State.LEASED)
            self._answer(self._requests[waiter], owned=self._members[member])
        for member in plan.close:
            self._close_one(self._members[member])
        for state, changed in ((State.CHECKING, plan.check), (State.LOADING, plan.load)):
            for member in changed:
                self._set_state(self._members[member], state)
                self._members[member].changed.set()
        for opening in plan.open:
            self._open(opening)
        for waiter in plan.refuse:
            most, step = self._most
            full = CapacityReached(f"all {most} sandboxes are in use", f"close a session, or {step}", most=most)
            self._answer(self._requests[waiter], error=full)
        for request in self._requests.values():
            blocked = request.waiter.id in plan.blocked
            # A request waits for a sandbox that is being made as long as the engine takes, which has its own limits.
            deadline = request.since + self._limits.acquire_timeout if blocked else math.inf
            if request.scope.deadline != deadline:
                request.scope.deadline = deadline
        if plan.look_again < self._look_again:
            self._earlier.set()
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

    def _set_state(self, owned: Owned, state: State) -> None:
        owned.member = replace(owned.member, state=state)

    def _close_one(self, owned: Owned) -> None:
        self._set_state(owned, State.CLOSING)
        owned.scope.cancel()

    async def _own(self, owned: Owned) -> None:
        """Owns one sandbox from its start to its end."""
        key = owned.member.key
        try:
            with owned.scope:
                async with self._made(key) as sandbox, self._attach(sandbox, key.language):
                    owned.interpreters = interpreters = Interpreters(sandbox)
                    self._opened += 1
                    self._set_state(owned, State.OPENED)
                    self._step()
                    while True:
                        await self._advance(owned, interpreters)
        except Exception as error:
            self._fail(owned, error)
        finally:
            del self._members[owned.member.id]
            self._ended += owned.sandbox is not None
            self._step()

    def _made(self, key: Key) -> AbstractAsyncContextManager[Sandbox]:
        layer = self.layers.get((key.language, key.policy)) if key.start else key.layer
        return self._backend.sandbox(key.policy, key.image, self._zygote(key), layer)

    def _zygote(self, key: Key) -> Zygote | None:
        return self._preloads.zygote(key) if self._backend.forks else None

    async def _advance(self, owned: Owned, interpreters: Interpreters) -> None:
        if owned.member.state is State.OPENED:
            self._set_state(owned, State.WARMING)
            key = owned.member.key
            interpreter = await self._warm(interpreters, key.language)
            unloaded = interpreter.missed is None and self._preloads.left(key)
            if unloaded and key.start:  # a state must find the modules that code finds
                self._set_state(owned, State.LOADING)
            else:
                await self._set_warm(owned, interpreters, unloaded=unloaded)
            self._step()
        elif owned.member.state is State.LOADING:
            assert owned.interpreter is not None  # it was warm
            if await self._preloads.load(owned.member.key, owned.interpreter):
                await self._set_warm(owned, interpreters, unloaded=False)
            else:
                self._close_one(owned)
            self._step()
        elif owned.member.state is State.CHECKING:
            assert owned.interpreter is not None  # it was warm
            await owned.interpreter.check(_HEALTH)
            owned.member = replace(owned.member, state=State.WARM, checked_at=anyio.current_time())
            self._step()
        else:
            owned.changed = anyio.Event()
            await owned.changed.wait()

    async def _set_warm(self, owned: Owned, interpreters: Interpreters, *, unloaded: bool) -> None:
        """Opens the session that those in the language start from, if there is one; then the sandbox is warm."""
        key = owned.member.key
        if key.start and self.start is not None:
            owned.started = await self.start(interpreters, key.language, None)
            if owned.interpreter is None:  # it had other modules than the libraries of that session
                await self._warm(interpreters, key.language)
        # So that the first run looks only for what it leaves itself.
        await interpreters.sandbox.usage()
        await interpreters.sandbox.new_outside()
        self._backoffs.pop(key, None)
        now = anyio.current_time()
        since = owned.member.warm_since or now
        owned.member = replace(owned.member, state=State.WARM, warm_since=since, checked_at=now, unloaded=unloaded)

    async def _warm(self, interpreters: Interpreters, language: str) -> Interpreter:
        # The check of the interpreter has its own, shorter limit; this one covers the rest of the start.
        with anyio.move_on_after(2 * WARM_UP):
            return await self._warm_up(interpreters, language)
        raise StartFailed(f"the interpreter of {language} did not start within {2 * WARM_UP:g} s")

    def _fail(self, owned: Owned, error: Exception) -> None:
        """Handles a sandbox that failed to start or to answer: its request gets the error, or a refill is delayed."""
        self._note(error)
        key, request = owned.member.key, self._requests.get(owned.member.waiter or 0)
        if owned.sandbox is None and request is not None:
            self._answer(request, error=error)
        elif owned.member.state in (State.WARMING, State.LOADING) and key in self._wanted:
            backoff = self._backoffs.get(key, _FIRST_BACKOFF)
            self._backoffs[key] = min(2 * backoff, _LONGEST_BACKOFF)
            self._wanted[key] = replace(self._wanted[key], not_before=anyio.current_time() + backoff)

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
