"""Attack: using up the resources that the kernel counts per user. Outcome: other sandboxes still have theirs."""

import pytest

from tests.hostile.conftest import Arena
from tests.hostile.counters import COUNTERS

pytestmark = pytest.mark.anyio


@pytest.mark.alone(only={"counter": "pseudo-terminals", "backend_name": ("docker", "kubernetes")})
@pytest.mark.parametrize("counter", COUNTERS)
async def test_others_still_have_what_one_sandbox_uses_up(arena: Arena, counter: str) -> None:
    """The arena also runs its neighbour meanwhile, and a new session afterwards."""
    taken = await arena.attack(COUNTERS[counter].take)
    print(taken.status, taken.stdout.text, taken.stderr.text)
    for session in (arena.neighbour, ""):
        await arena.check(f"{COUNTERS[counter].use}\nprint('works')", session)
