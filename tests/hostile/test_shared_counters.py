"""Attack: take all that the kernel has of what it counts for each user. Outcome: the others have theirs."""

import pytest

from tests.hostile.conftest import Arena
from tests.hostile.counters import COUNTERS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("counter", COUNTERS)
async def test_what_one_sandbox_takes_the_others_still_have(arena: Arena, counter: str) -> None:
    """The arena has its neighbour work meanwhile, and a newcomer afterwards."""
    taken = await arena.attack(COUNTERS[counter].take)
    print(taken.status, taken.stdout.text, taken.stderr.text)
    for session in (arena.neighbour, ""):
        await arena.check(f"{COUNTERS[counter].use}\nprint('works')", session)
