"""Which connection gives way where all places are taken, on a clock that only the tests move."""

from collections.abc import Callable

import anyio
import pytest

from llm_sandbox_mcp.network.sharing import SETTLED, Place, Shared

pytestmark = pytest.mark.anyio


class Places:
    """Connections that share a maximum; each owner can have `each` of them."""

    def __init__(self, most: int, each: int = 9) -> None:
        self.now = 1000.0
        self.ended: list[str] = []
        self._shared = Shared(most)
        self._each = each

    def take(self, name: str, *, busy: bool = False) -> Place | None:
        """A place for the connection with this name, whose first letter is its owner."""
        place = self._shared.take_now(name[0], self._each, lambda: self.ended.append(name))
        if place is not None and busy:
            place.work()
        return place

    def have(self, *names: str, busy: bool = False) -> list[Place]:
        """One connection after the other, each of which gets a place at once."""
        places = []
        for name in names:
            place = self.take(name, busy=busy)
            assert place is not None
            places.append(place)
            self.now += 1
        return places

    def leave(self, place: Place) -> None:
        self._shared.leave(place)


Make = Callable[..., Places]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(most: int, each: int = 9) -> Places:
        places = Places(most, each)
        monkeypatch.setattr(anyio, "current_time", lambda: places.now)
        return places

    return make


async def test_a_connection_without_a_request_is_idle_once_its_first_one_would_have_come(
    make: Make,
) -> None:
    places = make(most=1)
    start = places.now
    places.have("a")
    places.now = start + 0.9 * SETTLED
    assert places.take("b") is None
    places.now = start + SETTLED
    assert places.take("b")
    assert places.ended == ["a"]


async def test_a_connection_with_a_request_is_not_idle_and_soon_after_its_end_neither(
    make: Make,
) -> None:
    places = make(most=1)
    [place] = places.have("a", busy=True)
    places.now += 1000 * SETTLED
    assert places.take("b") is None
    place.wait()
    places.now += 0.9 * SETTLED
    assert places.take("b") is None
    places.now += SETTLED
    assert places.take("b")


async def test_of_idle_connections_the_owner_with_the_most_loses_the_one_that_waits_longest(
    make: Make,
) -> None:
    places = make(most=5)
    places.have("a1", "b1")
    [first, _, _] = places.have("b2", "b3", "b4", busy=True)
    places.now += SETTLED
    first.wait()
    places.now += SETTLED
    places.have("c1", "c2", "c3", busy=True)
    assert places.ended == ["b1", "b2", "a1"]


async def test_what_may_give_way_late_does_so_after_the_others_of_its_owner(make: Make) -> None:
    places = make(most=3)
    [kept, _, _] = places.have("a1", "a2", "b1")
    kept.wait(late=True)
    places.now += SETTLED
    places.have("c1", "c2")
    assert places.ended == ["a2", "a1"]
    [plain, late] = make(most=2).have("a1", "a2")
    assert not plain.late
    late.wait(late=True)
    late.wait()
    assert not late.late


@pytest.mark.parametrize(("others", "own", "gives_way"), [(1, 0, False), (2, 0, True), (2, 1, False), (3, 1, True)])
async def test_a_request_in_progress_gives_way_to_an_owner_with_at_least_two_connections_less(
    others: int, own: int, gives_way: bool, make: Make
) -> None:
    places = make(most=others + own)
    held = places.have(*(f"a{number}" for number in range(others)), busy=True)
    places.have(*(f"b{number}" for number in range(own)), busy=True)
    held[0].moved()
    assert (places.take("b") is not None) is gives_way
    assert places.ended == [f"a{min(1, others - 1)}"] * gives_way


async def test_an_owner_with_all_that_it_can_have_takes_no_place_of_another(make: Make) -> None:
    places = make(most=4, each=2)
    places.have("a1", "a2")
    [_, second] = places.have("b1", "b2", busy=True)
    places.now += SETTLED
    assert places.take("b") is None
    second.wait()
    places.now += SETTLED
    assert places.take("b")
    assert places.ended == ["b2"]


async def test_places_are_free_up_to_the_maximum_and_those_that_were_left_are_free_again(
    make: Make,
) -> None:
    places = make(most=2)
    [first, _] = places.have("a1", "b1", busy=True)
    assert places.take("c") is None
    places.leave(first)
    places.leave(first)
    assert places.take("c", busy=True)
    assert places.take("c") is None
    assert not places.ended
