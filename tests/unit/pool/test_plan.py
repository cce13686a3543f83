"""The pool's plan, for any events in any order."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llm_sandbox_mcp.base.policy import narrow
from llm_sandbox_mcp.pool.plan import Key, Member, Opening, Plan, State, Waiter, Wanted, plan
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.profile.sections import PoolLimits
from tests.effort import tries
from tests.unit.policies import POLICY

PYTHON = Key("python", "", POLICY)
BASH = Key("bash", "", POLICY)
KEYS = [
    PYTHON,
    BASH,
    Key("python", "other", POLICY),
    Key("python", "", narrow(POLICY, {"timeout": 1})),
    Key("", "", POLICY),
]
LIMITS = load_profile().pool
IN_FLIGHT = (State.WARMING, State.CLOSING, State.CHECKING, State.LOADING)


def limits(**changes: object) -> PoolLimits:
    return LIMITS.model_copy(update=changes)


def warm(number: int, key: Key = PYTHON, *, at: float = 0.0) -> Member:
    return Member(number, key, State.WARM, warm_since=at, checked_at=at)


def planned(
    members: Sequence[Member] = (), waiting: Sequence[Waiter] = (), *, now: float = 1.0, **changes: object
) -> Plan:
    return plan(members, waiting, {PYTHON: Wanted(1)}, limits(**changes), now)


class Pool(RuleBasedStateMachine):
    """Carries out plans as the real pool does, on an engine that may fail at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[int, Member] = {}
        self.waiting: dict[int, Waiter] = {}
        self.opened: set[int] = set()
        """Members that the engine has made."""
        self.used: set[int] = set()
        self.wanted: dict[Key, Wanted] = {}
        self.now = 0.0
        self.asked_at = 0.0
        self.ids = 0
        self.plan = planned()

    @initialize(
        most=st.integers(1, 4),
        minimum=st.integers(0, 2),
        exhaustion=st.sampled_from(["wait", "fail_fast", "temporary"]),
    )
    def begin(self, most: int, minimum: int, exhaustion: str) -> None:
        self.limits = limits(max=most, exhaustion=exhaustion, idle_timeout=10.0, lifetime=60.0, health_interval=7.0)
        if minimum <= most:
            self.wanted = {PYTHON: Wanted(minimum)}
        if 2 * minimum <= most:
            self.wanted[BASH] = Wanted(minimum)
        self.step()

    @rule(key=st.sampled_from(KEYS))
    def request(self, key: Key) -> None:
        self.ids += 1
        self.asked_at = self.now
        self.waiting[self.ids] = Waiter(self.ids, key)
        self.step()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        del self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        self.step()

    @precondition(lambda self: any(one.state in IN_FLIGHT for one in self.members.values()))
    @rule(data=st.data())
    def engine_goes_on(self, data: st.DataObject) -> None:
        self.advance(data.draw(st.sampled_from([n for n, one in self.members.items() if one.state in IN_FLIGHT])))

    @precondition(lambda self: any(one.state is State.WARMING for one in self.members.values()))
    @rule(data=st.data(), rest=st.floats(0, 30))
    def engine_fails(self, data: st.DataObject, rest: float) -> None:
        number = data.draw(st.sampled_from([n for n, one in self.members.items() if one.state is State.WARMING]))
        failed = self.members.pop(number)
        if failed.waiter in self.waiting and number not in self.opened:
            del self.waiting[failed.waiter]
        elif failed.key in self.wanted:
            self.wanted[failed.key] = replace(self.wanted[failed.key], not_before=self.now + rest)
        self.step()

    @precondition(lambda self: any(one.state is State.LEASED for one in self.members.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([n for n, one in self.members.items() if one.state is State.LEASED]))
        self.members[number] = replace(self.members[number], state=State.CLOSING)
        self.step()

    @rule(seconds=st.floats(0.1, 70))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.step()

    @invariant()
    def there_are_never_too_many_sandboxes(self) -> None:
        if hasattr(self, "limits"):
            assert sum(not one.temporary for one in self.members.values()) <= self.limits.max
            assert self.limits.exhaustion == "temporary" or not any(one.temporary for one in self.members.values())

    @invariant()
    def no_request_waits_while_there_is_room(self) -> None:
        if self.plan.blocked:
            counted = [one for one in self.members.values() if not one.temporary]
            assert len(counted) == self.limits.max
            leaving = sum(one.state is State.CLOSING for one in counted)
            idle = [one for one in counted if one.state is State.WARM]
            assert not idle or len(self.plan.blocked) <= leaving, "a warm sandbox could have made room"

    @invariant()
    def only_wanted_sandboxes_are_kept(self) -> None:
        for one in self.members.values():
            if one.state in (State.WARM, State.CHECKING, State.LOADING):
                assert one.key in self.wanted and not one.temporary

    @invariant()
    def the_next_check_is_in_the_future(self) -> None:
        assert self.plan.look_again > self.now

    def teardown(self) -> None:
        if not hasattr(self, "limits"):
            return
        self.waiting.clear()
        for number, one in self.members.items():
            if one.state is State.LEASED:
                self.members[number] = replace(one, state=State.CLOSING)
        self.step()
        for _ in range(100):
            self.now = min(self.plan.look_again, self.now + 31) if self.settled() else self.now
            self.step()
            while moving := [n for n, one in self.members.items() if one.state in IN_FLIGHT]:
                self.advance(moving[0])
        kept = {key: [one for one in self.members.values() if one.key == key] for key in KEYS}
        for key, found in kept.items():
            assert len(found) == (self.wanted[key].minimum if key in self.wanted else 0)
            assert not any(one.unloaded for one in found)

    def settled(self) -> bool:
        return not any(one.state in IN_FLIGHT for one in self.members.values())

    def advance(self, number: int) -> None:
        one = self.members[number]
        if one.state is State.CLOSING:
            del self.members[number]
        elif one.state in (State.CHECKING, State.LOADING):
            unloaded = one.unloaded and one.state is State.CHECKING
            self.members[number] = replace(one, state=State.WARM, checked_at=self.now, unloaded=unloaded)
        elif number in self.opened:
            unloaded = one.key == PYTHON
            self.members[number] = replace(
                one, state=State.WARM, warm_since=self.now, checked_at=self.now, unloaded=unloaded
            )
        else:
            self.opened.add(number)
            self.members[number] = replace(one, state=State.OPENED)
            self.step()
            if self.members[number].state is State.OPENED:
                self.members[number] = replace(self.members[number], state=State.WARMING)
        self.step()

    def step(self) -> None:
        members, waiting = [*self.members.values()], [*self.waiting.values()]
        given = copy.deepcopy((members, waiting, self.wanted))
        rest = (self.wanted, self.limits, self.now, self.asked_at)
        found = plan(members, waiting, *rest)
        assert (members, waiting, self.wanted) == given, "it changed its arguments"
        assert found == plan(members[::-1], waiting[::-1], *rest)
        self.carry_out(found)
        self.plan = plan([*self.members.values()], [*self.waiting.values()], *rest)
        nothing = replace(self.plan, hand=(), open=(), close=(), check=(), load=(), refuse=())
        assert self.plan == nothing, "an action that was carried out is planned again"

    def carry_out(self, found: Plan) -> None:
        for number, waiter in found.hand:
            member = self.members[number]
            assert member.key == self.waiting[waiter].key
            assert member.state in (State.WARM, State.OPENED)
            assert self.now < member.warm_since + self.limits.lifetime or member.state is State.OPENED
            assert number not in self.used, "a used sandbox was handed out again"
            assert all(one.key != member.key or one.id >= waiter for one in self.waiting.values()), "out of turn"
            self.used.add(number)
            self.members[number] = replace(member, state=State.LEASED)
            del self.waiting[waiter]
        for number in found.close:
            assert self.members[number].state not in (State.LEASED, State.CLOSING)
            self.members[number] = replace(self.members[number], state=State.CLOSING)
        for number in found.check:
            assert self.members[number].state is State.WARM
            self.members[number] = replace(self.members[number], state=State.CHECKING)
        for number in found.load:
            assert self.members[number].unloaded and number not in found.check
            assert self.now > self.asked_at, "it imports modules although a request has just come"
            self.members[number] = replace(self.members[number], state=State.LOADING)
        assert sum(one.state is State.LOADING for one in self.members.values()) <= 1
        for opening in found.open:
            assert opening.waiter is not None or opening.key in self.wanted
            assert opening.waiter is not None or not found.blocked, "a refill took the place that a request waits for"
            self.ids += 1
            self.members[self.ids] = Member(
                self.ids,
                opening.key,
                State.WARMING,
                waiter=opening.waiter,
                temporary=opening.temporary,
            )
        for waiter in found.refuse:
            assert self.limits.exhaustion == "fail_fast"
            del self.waiting[waiter]


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=tries(50), stateful_step_count=40)


def test_a_warm_sandbox_goes_to_the_first_request_of_its_key_and_is_replaced() -> None:
    found = planned([warm(1)], [Waiter(3, PYTHON), Waiter(2, PYTHON)])
    assert found.hand == ((1, 2),)
    assert found.open == (Opening(PYTHON, 3), Opening(PYTHON))


@pytest.mark.parametrize("key", KEYS[1:])
def test_a_request_for_another_language_image_or_policy_gets_a_new_sandbox(key: Key) -> None:
    found = planned([warm(1)], [Waiter(2, key)])
    assert (found.hand, found.open) == ((), (Opening(key, 2),))


def test_a_warm_sandbox_of_another_key_makes_room_and_is_replaced_only_when_there_is_room_again() -> None:
    found = planned([warm(1)], [Waiter(2, BASH)], max=1)
    assert (found.close, found.open, (*found.blocked,)) == ((1,), (), (2,))


def test_a_request_waits_for_a_sandbox_that_is_being_warmed() -> None:
    found = planned([Member(1, PYTHON, State.WARMING)], [Waiter(2, PYTHON)], max=1)
    assert (found.open, found.close, (*found.blocked,)) == ((), (), ())


@pytest.mark.parametrize(
    ("exhaustion", "opened", "refused", "blocked"),
    [("wait", (), (), (2,)), ("fail_fast", (), (2,), (2,)), ("temporary", (Opening(PYTHON, 2, True),), (), ())],
)
def test_when_all_sandboxes_are_in_use_the_profile_decides(
    exhaustion: str, opened: tuple[Opening, ...], refused: tuple[int, ...], blocked: tuple[int, ...]
) -> None:
    found = planned([Member(1, PYTHON, State.LEASED)], [Waiter(2, PYTHON)], max=1, exhaustion=exhaustion)
    assert (found.open, found.refuse, (*found.blocked,)) == (opened, refused, blocked)


def test_no_warm_sandbox_makes_room_for_a_request_that_one_which_is_closing_makes_room_for() -> None:
    members = [warm(1), Member(2, BASH, State.CLOSING)]
    found = planned(members, [Waiter(3, BASH)], max=2)
    assert not found.close
    assert found.blocked == {3}
    assert planned(members, [Waiter(3, BASH), Waiter(4, BASH)], max=2).close == (1,)


def test_no_request_is_refused_while_a_sandbox_is_closing() -> None:
    found = planned([Member(1, PYTHON, State.CLOSING)], [Waiter(2, PYTHON)], max=1, exhaustion="fail_fast")
    assert (found.refuse, (*found.blocked,)) == ((), (2,))


def test_a_sandbox_that_is_too_old_is_replaced_even_if_a_request_waits() -> None:
    found = planned([warm(1)], [Waiter(2, PYTHON)], now=LIMITS.lifetime)
    assert (found.hand, found.close, found.open) == ((), (1,), (Opening(PYTHON, 2), Opening(PYTHON)))


def test_sandboxes_beyond_the_minimum_are_closed_after_the_idle_time_the_longest_idle_first() -> None:
    members = [warm(1, at=5.0), warm(2, at=0.0)]
    assert planned(members).look_again == LIMITS.health_interval
    found = planned(members, now=LIMITS.idle_timeout)
    assert found.close == (2,)
    assert found.check == (1,)


@pytest.mark.parametrize("members", [[], [warm(number) for number in range(4)]], ids=["none", "more than wanted"])
def test_refills_come_one_at_a_time_however_many_another_key_has(members: list[Member]) -> None:
    wanted = {PYTHON: Wanted(1), BASH: Wanted(3)}
    assert len(plan(members, (), wanted, limits(max=20), 1.0).open) == 1


def test_a_failed_refill_pauses_but_requests_do_not() -> None:
    wanted = {PYTHON: Wanted(1, not_before=5.0)}
    found = plan([], [Waiter(1, PYTHON)], wanted, LIMITS, 1.0)
    assert (found.open, found.look_again) == ((Opening(PYTHON, 1),), 5.0)
    assert plan([], [], wanted, LIMITS, 5.0).open == (Opening(PYTHON),)


def test_with_nothing_wanted_and_no_request_there_is_never_anything_to_do() -> None:
    found = plan([], [], {}, LIMITS, 0.0)
    assert (found.open, found.close, found.look_again) == ((), (), math.inf)


def test_an_unneeded_temporary_sandbox_is_closed_even_if_its_language_is_kept_warm() -> None:
    found = planned([Member(1, PYTHON, State.WARMING, temporary=True)], exhaustion="temporary")
    assert found.close == (1,)


@pytest.mark.parametrize("exhaustion", ["fail_fast", "temporary"])
def test_no_request_is_refused_or_exceeds_the_limit_if_a_warm_sandbox_can_make_room(exhaustion: str) -> None:
    found = planned([warm(1)], [Waiter(2, BASH)], max=1, exhaustion=exhaustion)
    assert (found.close, found.refuse, found.open, (*found.blocked,)) == ((1,), (), (), (2,))


def test_an_idle_sandbox_of_a_key_that_is_not_kept_warm_is_closed_at_once() -> None:
    assert planned([warm(1), warm(2, BASH)]).close == (2,)


def test_of_two_warm_sandboxes_a_request_gets_the_one_that_has_imported_its_modules() -> None:
    found = planned([replace(warm(1, at=0.5)), replace(warm(2, at=0.9), unloaded=True)], [Waiter(3, PYTHON)])
    assert (found.hand, found.load) == (((1, 3),), (2,))


@pytest.mark.parametrize("most", [1, 2])
def test_no_request_waits_for_imports(most: int) -> None:
    found = planned([Member(1, PYTHON, State.LOADING, unloaded=True)], [Waiter(2, PYTHON)], max=most)
    assert (found.open, found.close) == (((), (1,)) if most == 1 else ((Opening(PYTHON, 2),), ()))
